import pytest

from sandbox.faults import BadRule, Faults, parse_rules
from sandbox.http import Request

POST = Request("POST", "/v1/payment_intents?a=1", {}, b"amount=5&currency=eur")


def applied(match: dict[str, object], request: Request = POST, times: int = 1) -> list[bool]:
    faults = Faults()
    faults.replace(parse_rules([{"match": match, "effect": {"status": 500}}]))
    return [faults.choose(request)[0].status == 500 for _ in range(times)]


@pytest.mark.parametrize(
    "match",
    [
        {},
        {"method": "post"},
        {"path": "/v1"},
        {"path_regex": r"intents\?a=\d$"},
        {"contains": "currency=eur"},
    ],
)
def test_a_rule_takes_what_fits_all_its_conditions(match: dict[str, object]) -> None:
    assert applied(match) == [True]


@pytest.mark.parametrize(
    "match", [{"method": "GET"}, {"path": "/v2"}, {"path_regex": "^/x"}, {"contains": "usd"}]
)
def test_a_rule_leaves_what_misses_one_condition(match: dict[str, object]) -> None:
    assert applied({"method": "POST", **match}) == [False]


def test_a_count_takes_the_first_n_and_is_spent() -> None:
    assert applied({"count": 2}, times=4) == [True, True, False, False]


def test_every_takes_each_nth() -> None:
    assert applied({"every": 3}, times=6) == [False, False, True, False, False, True]


def test_a_share_with_a_seed_is_the_same_each_time() -> None:
    first = applied({"share": 0.5, "seed": 7}, times=200)
    assert first == applied({"share": 0.5, "seed": 7}, times=200)
    assert 70 < sum(first) < 130


def test_the_first_rule_that_matches_applies_and_a_spent_one_gives_way() -> None:
    faults = Faults()
    faults.replace(
        parse_rules([{"match": {"count": 1}, "effect": {"status": 500}}, {"effect": {"status": 503}}])
    )
    assert [faults.choose(POST)[0].status for _ in range(3)] == [500, 503, 503]
    assert faults.counters() == [{"matched": 1, "applied": 1}, {"matched": 2, "applied": 2}]


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        ("x", "must be an object"),
        ({"match": {}}, "has match and effect"),
        ({"effect": {}, "when": 1}, "has match and effect"),
        ({"effect": [], "match": {}}, "effect must be an object"),
        ({"effect": {"status": 99}}, "status must be"),
        ({"effect": {"status": True}}, "status must be"),
        ({"effect": {"latency_ms": -1}}, "latency_ms must be"),
        ({"effect": {"latency_ms": "1"}}, "latency_ms must be"),
        ({"effect": {"latency_ms": float("nan")}}, "latency_ms must be"),
        ({"effect": {"hang": 1}}, "hang must be true or false"),
        ({"effect": {"hang": True, "reset": "before"}}, "choose one of hang and reset"),
        ({"effect": {"status": 500, "hang": True}}, "exclude each other"),
        ({"effect": {"reset": "later"}}, "reset must be before or after"),
        ({"effect": {"trickle": "all"}}, "trickle must be"),
        ({"effect": {"body": "x"}}, "body needs a status"),
        ({"effect": {"stored": True}}, "stored needs a status"),
        ({"effect": {"after": True}}, "after needs"),
        ({"effect": {"headers": ["x"]}}, "a header must be"),
        ({"effect": {"headers": {"X": "a\r\nB: c"}}}, "line break"),
        ({"effect": {"lie": 1}}, "lie must be"),
        ({"effect": {"pad_bytes": 10**9}}, "pad_bytes must be"),
        ({"effect": {"refuse": True}, "match": {"path": "/"}}, "takes no match"),
        ({"effect": {}, "match": {"path_regex": "("}}, "no regular expression"),
        ({"effect": {}, "match": {"share": 2}}, "share must be"),
        ({"effect": {}, "match": {"count": 0}}, "count must be"),
        ({"effect": {}, "match": {"color": 1}}, "match does not know color"),
    ],
)
def test_a_wrong_rule_is_named_in_a_sentence(rule: object, sentence: str) -> None:
    with pytest.raises(BadRule, match=sentence):
        parse_rules([rule])


def test_the_rules_must_be_a_list() -> None:
    with pytest.raises(BadRule, match="JSON list"):
        parse_rules({})
