"""How many decimals a currency has: ISO 4217, nothing else and no default.

Source: ISO 4217 list one (active currencies and funds) as kept by the maintenance agency, SIX Group, with the
amendments up to 2026: ANG gave way to XCG, SLL to SLE, ZWL to ZWG, HRK and BGN to EUR, CUC was withdrawn, XAD
was added. Codes without a minor unit (metals, XDR, testing) are left out: nothing can be priced in them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_BY_EXPONENT = {
    0: "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF",
    2: """
        AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BMD BND BOB BOV BRL BSD BTN BWP BYN BZD CAD CDF CHE
        CHF CHW CNY COP COU CRC CUP CVE CZK DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GTQ GYD
        HKD HNL HTG HUF IDR ILS INR IRR JMD KES KGS KHR KPW KYD KZT LAK LBP LKR LRD LSL MAD MDL MGA MKD MMK
        MNT MOP MRU MUR MVR MWK MXN MXV MYR MZN NAD NGN NIO NOK NPR NZD PAB PEN PGK PHP PKR PLN QAR RON RSD
        RUB SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TOP TRY TTD TWD TZS UAH
        USD USN UYU UZS VED VES WST XAD XCD XCG YER ZAR ZMW ZWG
    """,
    3: "BHD IQD JOD KWD LYD OMR TND",
    4: "CLF UYW",
}

EXPONENTS: Mapping[str, int] = MappingProxyType(
    {code: digits for digits, codes in _BY_EXPONENT.items() for code in codes.split()}
)


class UnknownCurrency(ValueError):
    """The code is not an active ISO 4217 currency, written in capitals."""


def exponent(code: str) -> int:
    """Return the number of decimals of `code`; raise `UnknownCurrency` rather than assume two."""
    try:
        return EXPONENTS[code]
    except (KeyError, TypeError):
        raise UnknownCurrency(f"not an active ISO 4217 currency code: {str(code)[:12]!r}") from None
