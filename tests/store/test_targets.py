"""Where webhooks may lead: a public address however it is reached, and nothing else however it is spelt."""

import socket
from ipaddress import ip_address, ip_network

import pytest

from store.targets import Refused, Target, masked, may_reach, read_target, resolve

LOOPBACK = (ip_network("127.0.0.0/8"),)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",  # noqa: S104
        "255.255.255.255",
        "224.0.0.1",
        "240.0.0.1",
        "::",
        "::1",
        "::ffff:127.0.0.1",
        "::ffff:a00:1",
        "::7f00:1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
        "fe80::1",
        "fe80::1%eth0",
        "fd00:ec2::254",
        "fec0::1",
        "ff02::1",
    ],
)
def test_no_webhook_leads_into_the_networks_of_the_service(address: str) -> None:
    assert not may_reach(ip_address(address), ())


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8"])
def test_a_public_address_may_be_reached_but_not_in_the_clear(address: str) -> None:
    assert may_reach(ip_address(address), ())
    assert not may_reach(ip_address(address), (), plain=True)


def test_a_network_that_the_operator_allows_may_be_reached_in_any_way() -> None:
    for address in ("127.0.0.1", "::ffff:127.0.0.1"):
        assert may_reach(ip_address(address), LOOPBACK)
        assert may_reach(ip_address(address), LOOPBACK, plain=True)
    assert not may_reach(ip_address("10.0.0.1"), LOOPBACK)
    assert not may_reach(ip_address("::1"), LOOPBACK)


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "017700000001",
        "0x7f000001",
        "0x7f.1",
        "0177.0.0.1",
        "127.0.0.1.",
        "0",
        "[::1]",
        "[::ffff:7f00:1]",
        "[0:0:0:0:0:ffff:127.0.0.1]",
        "169.254.169.254",
        "localhost",
        "a.localhost",
    ],
)
def test_no_spelling_of_a_host_gets_past(host: str) -> None:
    with pytest.raises(Refused, match="public"):
        read_target(f"https://{host}/hook", ())


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://example.com/hook", "https"),
        ("ftp://example.com/hook", "https"),
        ("file:///etc/passwd", "https"),
        ("example.com/hook", "https"),
        ("https:///hook", "host"),
        ("https://user:pass@example.com/", "user name"),
        ("https://example.com\\@127.0.0.1/", "user name"),
        ("https://example.com/#part", "fragment"),
        ("https://example.com:0/", "port"),
        ("https://example.com:99999/", "such as"),
        ("https://[::1/", "such as"),
        ("https://[fe80::1%25eth0]/", "host"),
        ("https://example.com/a b", "ASCII"),
        ("https://example.com/\r\nHost: x", "ASCII"),
        ("https://①②⑦.0.0.1/", "ASCII"),
        ("https://example.com/" + "a" * 2000, "2000"),
    ],
)
def test_a_url_that_is_no_webhook_is_refused_with_what_was_expected(url: str, why: str) -> None:
    with pytest.raises(Refused, match=why):
        read_target(url, ())


def test_a_url_is_read_into_what_a_request_needs() -> None:
    assert read_target("https://example.com", ()) == Target("https", "example.com", 443, "/")
    target = read_target("http://[::ffff:127.0.0.1]:8080/a?b=c", LOOPBACK)
    assert (target.port, target.path, target.authority) == (8080, "/a?b=c", "[::ffff:127.0.0.1]:8080")


def test_a_name_is_judged_by_its_addresses_whenever_it_is_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([["93.184.216.34"], ["127.0.0.1"], ["127.0.0.1", "93.184.216.34"]])

    def rebinding(_host: str, port: int, **_options: object) -> list:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in next(answers)]

    monkeypatch.setattr(socket, "getaddrinfo", rebinding)
    target = read_target("https://rebind.example/", ())
    assert resolve(target, ()) == [ip_address("93.184.216.34")]
    with pytest.raises(Refused, match="no public address"):
        resolve(target, ())
    assert resolve(target, ()) == [ip_address("93.184.216.34")]


def test_a_url_is_shown_without_the_values_of_its_query() -> None:
    assert masked("https://example.com/hook?token=abc&k") == "https://example.com/hook?token=***&***"
    assert masked("https://example.com/hook") == "https://example.com/hook"
