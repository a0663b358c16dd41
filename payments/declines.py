"""The gateway's decline codes, each with the key of the sentence a shopper reads.

Source: docs.stripe.com/declines/codes. As advised there, a shopper is not told that a card is reported lost,
stolen or suspected of fraud: those read like any other decline.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_BY_MESSAGE = {
    "declined": """
        card_declined generic_decline do_not_honor do_not_try_again call_issuer no_action_taken
        security_violation service_not_allowed transaction_not_allowed stop_payment_order
        revocation_of_authorization revocation_of_all_authorizations fraudulent merchant_blacklist lost_card
        stolen_card pickup_card restricted_card test_mode_live_card testmode_decline live_mode_test_card
        invalid_amount previously_declined_do_not_retry highest_risk_level
    """,
    "insufficient_funds": "insufficient_funds",
    "limit_exceeded": "card_velocity_exceeded withdrawal_count_limit_exceeded",
    "expired_card": "expired_card",
    "wrong_details": """
        incorrect_number incorrect_cvc incorrect_zip incorrect_address incorrect_pin invalid_number
        invalid_cvc invalid_expiry_month invalid_expiry_year invalid_pin invalid_account
        new_account_information_available
    """,
    "not_supported": "card_not_supported currency_not_supported not_permitted",
    "authentication_failed": """
        authentication_required authentication_not_handled payment_intent_authentication_failure
        approve_with_id offline_pin_required online_or_offline_pin_required
        mobile_device_authentication_required pin_try_exceeded
    """,
    "try_again": """
        processing_error issuer_not_available reenter_transaction try_again_later duplicate_transaction
        card_decline_rate_limit_exceeded
    """,
    "canceled": "canceled",
}

CARD_DECLINES: Mapping[str, str] = MappingProxyType(
    {code: message for message, codes in _BY_MESSAGE.items() for code in codes.split()}
)


def decline_message(code: str) -> str:
    """Return the message key for a decline code; a code we do not know reads as a plain decline."""
    return CARD_DECLINES.get(code, "declined")
