use super::*;

/// Knows the ports of the Services `weather` (8000 and 80) and `db` (5432) in namespace `ns`, and `ollama` (11434) in `other`.
fn address(service: &ServicePort) -> Option<SocketAddr> {
    let found = match (service.namespace.as_str(), service.name.as_str(), service.port) {
        ("ns", "weather", 8000) => 20001,
        ("ns", "weather", 80) => 20002,
        ("ns", "db", 5432) => 20003,
        ("other", "ollama", 11434) => 20004,
        _ => return None,
    };
    Some(([127, 0, 0, 1], found).into())
}

fn replaced(text: &str) -> Replaced {
    replace(text, "ns", "cluster.local", address)
}

#[test]
fn a_url_of_a_service_gets_the_address_of_its_relay_and_stays_as_it_is_otherwise() {
    for (text, expected) in [
        ("http://weather:8000", "http://127.0.0.1:20001"),
        ("http://weather", "http://127.0.0.1:20002"),
        ("http://weather.ns:8000/mcp", "http://127.0.0.1:20001/mcp"),
        ("http://weather.ns.svc:8000/a%20b?q={x}#y", "http://127.0.0.1:20001/a%20b?q={x}#y"),
        ("http://weather.ns.svc.cluster.local:8000/", "http://127.0.0.1:20001/"),
        ("http://weather.ns.svc.cluster.local.:8000", "http://127.0.0.1:20001"),
        ("ws://weather?x", "ws://127.0.0.1:20002?x"),
        ("postgresql://u:p@ss@db.ns:5432/x?sslmode=disable", "postgresql://u:p@ss@127.0.0.1:20003/x?sslmode=disable"),
        ("postgresql+asyncpg://u@db/x", "postgresql+asyncpg://u@127.0.0.1:20003/x"),
        ("HTTP://ollama.other:11434", "HTTP://127.0.0.1:20004"),
    ] {
        let Replaced::Yes { text: found, .. } = replaced(text) else { panic!("{text} stays") };
        assert_eq!(found, expected);
    }
}

#[test]
fn nothing_else_is_replaced() {
    for text in [
        "",
        "weather:8000",
        "see http://weather:8000",
        "http://weather:8000 ",
        "http://weather:8000\nmore",
        "https://weather:8000",
        "http://weather:0",
        "http://weather:x",
        "http://weather:8001",
        "http://weather.com:8000",
        "http://weather.ns.svc.example.com:8000",
        "http://weather.ns.example:8000",
        "http://a.weather.ns.svc:8000",
        "http://weather.svc:8000",
        "http://Weather:8000",
        "http://:8000",
        "http://127.0.0.1:8000",
        "http://[::1]:8000",
        "postgresql://db:5432,db:5433/x",
        "x://weather",
        "://weather:8000",
        "1://weather:8000",
        "http://user:weather:8000",
    ] {
        assert_eq!(replaced(text), Replaced::No, "{text}");
    }
}

#[test]
fn a_service_that_is_not_there_is_told_if_the_host_can_be_nothing_else() {
    let unserved = |host: &str| Replaced::Unserved(host.to_owned());
    assert_eq!(replaced("postgres://u:secret@db.x.svc/y"), unserved("db.x.svc:5432"));
    assert_eq!(replaced("http://weather.ns.svc.cluster.local:9"), unserved("weather.ns.svc.cluster.local:9"));
    assert_eq!(replaced("http://gone:8000"), Replaced::No);
}

#[test]
fn in_json_whole_strings_are_replaced_and_no_other_byte() {
    let replace = |json: &str| {
        replace_in_json(json, |text| match replaced(text) {
            Replaced::Yes { text, .. } => Some(text),
            _ => None,
        })
    };
    let json = r#"[ {"endpoint":"http://weather:8000/{x}" ,"note": "see http://weather:8000", "http://weather:8000" : 1.50,
        "esc": "\u0041\"http://weather:8000\\", "e2":"http:\/\/weather:8000", "n": null} ]"#;
    let expected = json
        .replacen("http://weather:8000/{x}", "http://127.0.0.1:20001/{x}", 1)
        .replace(r"http:\/\/weather:8000", "http://127.0.0.1:20001");
    assert_eq!(replace(json), expected);
    for same in ["", "{}", "no json", r#"{"a":"unfinished http://weather:8000"#, r#""\"#, "\"", r#"a"b"#] {
        assert_eq!(replace(same), same);
    }
}

proptest::proptest! {
    #[test]
    fn a_text_that_names_no_service_stays(text in "\\PC{0,40}") {
        proptest::prop_assert_eq!(replace_in_json(&text, |_| None), text.clone());
        proptest::prop_assert!(replace(&text, "ns", "d", |_| None) == Replaced::No || text.contains(".svc"));
    }
}
