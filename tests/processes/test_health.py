"""Three questions of health, asked of a real server whose surroundings fail (OP-30, OP-31)."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests

from sandbox.processes import free_port
from tests.neighbours import REFUSE, Neighbourhood
from tests.processes.harness import Browser, Stack, eventually

pytestmark = pytest.mark.process
PRODUCTION = {
    "HOLDFAST_ENV": "production",
    "ALLOWED_HOSTS": "shop.example",
    "SECRET_KEY": "8Jd0sK2mQx7vLr4TzWc9YbNf6HpGa3Ue5XiRoBt1ZlVhSyDkEwMqPuCn",
}


@pytest.fixture
def own(neighbours: Neighbourhood) -> Iterator[Stack]:
    with Stack(own_postgres=True) as stack:
        yield stack


def probe(base: str, name: str, **headers: str) -> requests.Response:
    return requests.get(f"{base}/health/{name}/", headers=headers, timeout=10, allow_redirects=False)


def test_neighbours_and_valkey_down_change_readiness_not_at_all_and_are_named(
    stack: Stack, neighbours: Neighbourhood
) -> None:
    base = stack.web()
    first = probe(base, "dependencies")
    assert (first.status_code, set(first.json().values())) == (200, {"OK"}), first.text
    for neighbour in (neighbours.gateway, neighbours.catalog, neighbours.rates):
        neighbours.fault(neighbour, REFUSE)
    stack.valkey.kill()
    before = stack.sql("SELECT count(*) FROM django_session")

    def down() -> dict[str, str]:
        answer = probe(base, "dependencies")
        return (
            {name: text for name, text in answer.json().items() if text != "OK"}
            if answer.status_code == 503
            else {}
        )

    found = eventually(lambda: down() if len(down()) == 5 else None, 10)
    assert set(found) == {"payment", "catalog", "rates", "cache", "broker"}
    secrets = [stack.environment[name] for name in ("PAYMENT_URL", "BROKER_URL", "DATABASE_URL")]
    text = probe(base, "dependencies").text + probe(base, "dependencies/?format=text").text
    assert not any(secret in text for secret in (*secrets, "127.0.0.1", "sk_test")), text
    assert probe(base, "ready").status_code == 200
    assert probe(base, "live").status_code == 200
    assert (
        "health_check_status"
        in requests.get(f"{base}/health/dependencies/?format=openmetrics", timeout=10).text
    )
    assert stack.sql("SELECT count(*) FROM django_session") == before
    assert not probe(base, "live").cookies


def test_a_hung_database_hangs_no_probe_and_piles_up_nothing(own: Stack) -> None:
    assert own.postgres is not None
    base = own.web(WEB_WORKERS="1")
    shopper = Browser(base)
    shopper.put_in_basket()
    cookies = "; ".join(f"{name}={value}" for name, value in shopper.session.cookies.items())
    probe(base, "dependencies")
    own.postgres.pause()
    crowd = ["/"] * 30 + ["/health/dependencies/"] * 60 + ["/ops/", "/admin/"] * 20
    waiting = [threading.Thread(target=_visit, args=(base, path), daemon=True) for path in crowd]
    try:
        for visitor in waiting:
            visitor.start()
        eventually(lambda: _known_down(base), 20)
        child = own.children("web")[0]
        threads, files = _threads(child), _files(child)
        slowest: dict[str, float] = {}
        for number in range(100):
            headers = {"Cookie": cookies} if number % 2 else {}
            for name in ("live", "ready"):
                begun = time.monotonic()
                assert probe(base, name, **headers).status_code == 200
                slowest[name] = max(slowest.get(name, 0), time.monotonic() - begun)
            if number % 20 == 0:
                begun = time.monotonic()
                answer = probe(base, "dependencies")
                assert answer.status_code == 503, answer.text
                assert answer.json()["database"] != "OK"
                slowest["dependencies"] = max(slowest.get("dependencies", 0), time.monotonic() - begun)
        print({name: f"{seconds * 1000:.0f} ms" for name, seconds in slowest.items()})
        assert slowest["live"] < 1, slowest
        assert slowest["ready"] < 1, slowest
        assert slowest["dependencies"] < 4, slowest
        assert _threads(child) <= threads + 8, "one thread for each check, not one for each probe"
        assert _files(child) <= files + 12
    finally:
        own.postgres.resume()
    for visitor in waiting:
        visitor.join(20)
    eventually(lambda: Browser(base).get("/").status == 200, 10)
    eventually(lambda: probe(base, "dependencies").status_code == 200, 10)


def test_many_who_ask_about_a_hung_database_take_few_places_of_shoppers(own: Stack) -> None:
    assert own.postgres is not None
    base = own.web(WEB_WORKERS="1", WEB_THREADS="6", SPARE_THREADS="2")
    own.postgres.pause()
    try:
        with ThreadPoolExecutor(12) as pool:
            asked = list(pool.map(lambda _: probe(base, "dependencies"), range(12)))
    finally:
        own.postgres.resume()
    assert {answer.status_code for answer in asked} == {503}
    told = [answer for answer in asked if answer.headers["Content-Type"] == "application/json"]
    assert 1 <= len(told) <= 4
    assert all(answer.headers["Retry-After"] == "1" for answer in asked if answer not in told)


def test_threads_in_the_background_give_up_a_database_that_says_nothing_and_come_back(own: Stack) -> None:
    assert own.postgres is not None
    port = free_port()
    own.web(WEB_WORKERS="1", METRICS_PORT=str(port))
    eventually(lambda: own.sql("SELECT count(*) FROM payments_breakerreport")[0][0] == 1, 20)

    def read_at() -> float:
        text = requests.get(f"http://127.0.0.1:{port}/metrics", timeout=10).text
        found = re.search(r"^holdfast_database_sampled_timestamp\S* (\S+)", text, re.MULTILINE)
        return float(found[1]) if found else 0.0

    eventually(read_at, 20)
    own.postgres.pause()
    try:
        for line in ("breaker not reported", "metrics of the database stand still"):
            eventually(lambda line=line: line in own.log("web"), 20, line)
    finally:
        own.postgres.resume()
    resumed = time.time()
    eventually(lambda: read_at() > resumed, 20)
    reported = "SELECT count(*) FROM payments_breakerreport WHERE at > to_timestamp(%s)"
    eventually(lambda: own.sql(reported, resumed)[0][0] == 1, 20)


def test_a_server_started_while_the_database_hangs_says_in_time_that_it_is_not_ready(own: Stack) -> None:
    assert own.postgres is not None
    own.postgres.pause()
    try:
        port = free_port()
        own.start("late", own.command("web"), PORT=str(port), WEB_WORKERS="1")
        base = f"http://127.0.0.1:{port}"
        eventually(lambda: _answers(base), 20)
        begun = time.monotonic()
        answers = [probe(base, "ready").status_code for _ in range(5)]
        assert answers == [503] * 5
        assert time.monotonic() - begun < 5 * 1.2
    finally:
        own.postgres.resume()
    eventually(lambda: probe(base, "ready").status_code == 200, 15)


def _known_down(base: str) -> bool:
    """Told by the page itself: at the door of a full house it would be 503 too."""
    answer = probe(base, "dependencies")
    return answer.headers["Content-Type"] == "application/json" and answer.json()["database"] != "OK"


def _answers(base: str) -> bool:
    try:
        return probe(base, "live").status_code == 200
    except requests.RequestException:
        return False


def _visit(base: str, path: str) -> None:
    try:
        requests.get(base + path, timeout=60)
    except requests.RequestException:
        return


def _threads(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


def _files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def test_in_production_probes_by_address_are_answered_and_nothing_else_is(stack: Stack) -> None:
    base = stack.web(**PRODUCTION)
    for name in ("live", "ready"):
        answer = probe(base, name, Host="10.1.2.3:8000")
        assert (answer.status_code, answer.headers.get("Location")) == (200, None)
    for path in ("/", "/checkout/", "/ops/", "/admin/", "/health/dependencies/", "/metrics/"):
        plain = requests.get(
            base + path, headers={"Host": "10.1.2.3:8000"}, allow_redirects=False, timeout=10
        )
        assert plain.status_code in (400, 404), f"{path}: {plain.status_code}"
        secure = {"Host": "10.1.2.3:8000", "X-Forwarded-Proto": "https"}
        forwarded = requests.get(base + path, headers=secure, allow_redirects=False, timeout=10)
        assert forwarded.status_code in (400, 404), f"{path}: {forwarded.status_code}"
    shop = requests.get(base + "/", headers={"Host": "shop.example"}, allow_redirects=False, timeout=10)
    assert (shop.status_code, shop.headers["Location"]) == (301, "https://shop.example/")
