use super::*;

/// Reports whether a request with these fields is local.
fn local(fields: &[(&str, &str)]) -> bool {
    is_local(|name| fields.iter().filter(move |(known, _)| *known == name).map(|(_, value)| value.as_bytes()))
}

#[test]
fn the_host_is_a_name_or_an_address_of_this_machine() {
    for (host, expected) in [
        ("localhost", true),
        ("localhost:8080", true),
        ("localhost:", true),
        ("LocalHost:8080", true),
        ("127.0.0.1", true),
        ("127.0.0.1:8080", true),
        ("127.1.2.3:1", true),
        ("[::1]", true),
        ("[::1]:8080", true),
        ("[0:0:0:0:0:0:0:1]:8080", true),
        ("[::ffff:127.0.0.1]:8080", true),
        ("[::ffff:7f00:1]", true),
        ("", false),
        (":8080", false),
        ("::1", false),
        ("[::1", false),
        ("[::1]8080", false),
        ("[::1].evil.example", false),
        ("[::1]:80.evil.example", false),
        ("[]:8080", false),
        ("[localhost]", false),
        ("[127.0.0.1]", false),
        ("[::]:8080", false),
        ("[::ffff:10.0.0.1]", false),
        ("[fd00::1]:8080", false),
        ("[fe80::1%25lo]", false),
        ("0.0.0.0:8080", false),
        ("10.0.0.1:8080", false),
        ("169.254.169.254", false),
        ("127.0.0.1.evil.example", false),
        ("127.0.0.1.:8080", false),
        ("0127.0.0.1", false),
        ("127.1", false),
        ("2130706433", false),
        ("0x7f000001", false),
        ("localhost.:8080", false),
        ("localhost.evil.example:8080", false),
        ("evil.localhost:8080", false),
        ("evil.example", false),
        ("localhost@evil.example", false),
        ("evil.example@localhost", false),
        ("localhost:80:80", false),
        ("localhost:80x", false),
        ("localhost:-1", false),
        ("localhost evil.example", false),
        ("localhost,evil.example", false),
        ("localhost/", false),
        ("lоcalhost", false),
    ] {
        assert_eq!(local(&[("host", host)]), expected, "{host:?}");
    }
    assert!(!is_local(|name| (name == "host").then_some(&b"\xff"[..]).into_iter()));
}

#[test]
fn the_origin_is_a_page_of_this_machine() {
    for (origin, expected) in [
        ("http://localhost:3000", true),
        ("https://localhost", true),
        ("http://127.0.0.1:8080", true),
        ("http://[::1]:8080", true),
        ("null", false),
        ("", false),
        ("localhost", false),
        ("http:localhost", false),
        ("http://", false),
        ("http://evil.example", false),
        ("https://localhost.evil.example", false),
        ("http://localhost@evil.example", false),
        ("http://10.0.0.1", false),
        ("http://0.0.0.0:8080", false),
        ("file://", false),
        ("chrome-extension://localhost", false),
        ("http://localhost, http://evil.example", false),
    ] {
        let fields = [("host", "localhost:8080"), ("origin", origin), ("sec-fetch-site", "same-origin")];
        assert_eq!(local(&fields), expected, "{origin:?}");
    }
}

#[test]
fn an_origin_that_the_browser_does_not_judge_is_that_of_the_host() {
    for (host, origin, expected) in [
        ("localhost:8083", "http://localhost:8083", true),
        ("LocalHost:8083", "http://localhost:8083", true),
        ("127.0.0.1:8083", "http://127.0.0.1:8083", true),
        ("[::1]:8083", "http://[::1]:8083", true),
        ("localhost", "https://localhost", true),
        ("localhost:8083", "http://localhost:3000", false),
        ("localhost:8083", "http://localhost", false),
        ("localhost", "http://localhost:8083", false),
        ("localhost:8083", "http://127.0.0.1:8083", false),
        ("localhost:8083", "http://localhost:80833", false),
        ("localhost:8083", "null", false),
        ("evil.example", "http://evil.example", false),
    ] {
        assert_eq!(local(&[("host", host), ("origin", origin)]), expected, "{host} {origin}");
    }
    assert!(!local(&[("origin", "http://localhost")]), "no browser leaves the host out");
}

#[test]
fn a_page_of_another_origin_is_told_by_the_browser() {
    for (site, expected) in [
        ("none", true),
        ("same-origin", true),
        ("same-site", false),
        ("cross-site", false),
        ("", false),
        ("new", false),
    ] {
        assert_eq!(local(&[("host", "localhost"), ("sec-fetch-site", site)]), expected, "{site}");
    }
}

#[test]
fn each_of_several_values_counts_and_a_program_sends_none() {
    assert!(local(&[]), "an HTTP/1.0 client, which is no browser");
    assert!(local(&[("user-agent", "evil.example")]));
    let host = ("host", "localhost");
    for (name, good) in [host, ("origin", "http://localhost"), ("sec-fetch-site", "none")] {
        assert!(local(&[host, (name, good), (name, good)]), "{name}");
        assert!(!local(&[host, (name, good), (name, "evil.example")]), "{name}");
        assert!(!local(&[host, (name, "evil.example"), (name, good)]), "{name}");
    }
    let hosts = [host, ("host", "localhost:8083")];
    assert!(local(&hosts) && !local(&[hosts[0], hosts[1], ("origin", "http://localhost")]), "which one is meant?");
}
