use super::*;

fn reach(variables: &'static [(&str, &str)]) -> EgressPolicy {
    EgressPolicy::new(&|name: &str| {
        variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).into())
    })
}

async fn admits(reach: &EgressPolicy, url: &str, who: UrlSource) -> bool {
    reach.check_url(&Url::parse(url).unwrap(), who).await.is_ok()
}

#[tokio::test]
async fn an_address_in_a_url_is_judged_by_who_chose_it() {
    let reach = reach(&[("CORAIL_PORT", "8001")]);
    for (url, tool, model) in [
        ("http://169.254.169.254/latest/meta-data/", false, false),
        ("http://2852039166/", false, false),
        ("http://[fd00:ec2::254]/", false, false),
        ("http://[64:ff9b::169.254.169.254]/", false, false),
        ("http://127.0.0.1:9000/", true, false),
        ("http://[::ffff:127.0.0.1]:9000/", true, false),
        ("http://0.0.0.0:9000/", true, false),
        ("http://127.0.0.1:8888/", false, false),
        ("http://127.9.9.9:8888/", false, false),
        ("http://0x7f.1:8888/", false, false),
        ("http://[::]:8888/", false, false),
        ("http://127.0.0.1:8001/", false, false),
        ("http://localhost:8001/", false, false),
        ("http://10.0.0.1/", true, false),
        ("http://172.20.0.1/", true, false),
        ("http://192.168.200.200/", true, false),
        ("http://100.64.0.1/", true, false),
        ("http://[fd12::1]/", true, false),
        ("http://[::ffff:10.0.0.1]/", true, false),
        ("http://8.8.8.8/", true, true),
        ("http://example.com/", true, true),
    ] {
        assert_eq!(admits(&reach, url, UrlSource::Tool).await, tool, "{url} of a Tool");
        assert_eq!(admits(&reach, url, UrlSource::Model).await, model, "{url} of a model");
    }
}

#[tokio::test]
async fn a_name_is_judged_by_the_address_that_it_has() {
    let loopback: IpAddr = [127, 0, 0, 1].into();
    let (plain, dev) = (reach(&[]), reach(&[("RECIF_LOCAL", "true")]));
    assert!(plain.address_check(UrlSource::Tool)("localhost", loopback).is_ok());
    assert!(plain.address_check(UrlSource::Tool)("sly.example", loopback).is_err(), "rebinding");
    assert!(plain.address_check(UrlSource::Model)("localhost", loopback).is_err());
    assert!(dev.address_check(UrlSource::Tool)("my.machine", loopback).is_ok());
    assert!(dev.address_check(UrlSource::Model)("localhost", loopback).is_err());
    assert!(dev.address_check(UrlSource::Tool)("x", [169, 254, 1, 1].into()).is_err());
}

#[tokio::test]
async fn on_a_developers_machine_tools_reach_it_but_for_our_own_ports_and_models_do_not() {
    let dev = reach(&[
        ("RECIF_LOCAL", "true"),
        ("CORAIL_PORT", "21005"),
        ("RECIF_SIDECAR_PORT", "21004"),
        ("RECIF_CLOSED_PORTS", "44321,8780"),
    ]);
    for (url, tool) in [
        ("http://localhost:3000/mcp", true),
        ("http://127.0.0.1:20417/mcp", true),
        ("http://[::1]:3000/", true),
        ("http://my.machine:3000/", true),
        ("http://127.0.0.1:8888/", true),
        ("http://127.0.0.1:21004/", false),
        ("http://localhost:21005/", false),
        ("http://127.0.0.1:44321/api/v1/secrets", false),
        ("http://localhost:8780/", false),
        ("http://my.machine:8780/", false),
        ("http://0.0.0.0:8780/", false),
        ("http://169.254.169.254/", false),
    ] {
        assert_eq!(admits(&dev, url, UrlSource::Tool).await, tool, "{url} of a Tool");
        let is_name = url.contains("localhost") || url.contains("my.machine");
        assert!(is_name || !admits(&dev, url, UrlSource::Model).await, "{url} of a model");
    }
    for name in ["localhost", "my.machine"] {
        // A name is judged by its address, when the connection is made.
        let loopback: IpAddr = [127, 0, 0, 1].into();
        assert!(dev.connection_check(UrlSource::Tool)(name, loopback).is_ok(), "{name}");
        assert!(dev.connection_check(UrlSource::Model)(name, loopback).is_err(), "{name}");
    }
    let plain = reach(&[("RECIF_SIDECAR_PORT", "21004"), ("RECIF_CLOSED_PORTS", "8780")]);
    assert!(!admits(&plain, "http://127.0.0.1:21004/", UrlSource::Tool).await);
    assert!(!admits(&plain, "http://127.0.0.1:8780/", UrlSource::Tool).await);
    assert!(admits(&plain, "http://127.0.0.1:8888/", UrlSource::Tool).await);
}

#[tokio::test]
async fn with_a_proxy_the_host_of_the_url_is_judged_and_the_proxy_is_reached() {
    let proxied = reach(&[("HTTPS_PROXY", "proxy.corp:3128")]);
    assert!(!admits(&proxied, "http://localhost:9/", UrlSource::Model).await);
    assert!(admits(&proxied, "http://localhost:9/", UrlSource::Tool).await);
    assert!(admits(&proxied, "http://surely-not-there.invalid/", UrlSource::Model).await);
    assert!(proxied.connection_check(UrlSource::Model)("proxy.corp", [10, 0, 0, 1].into()).is_ok());
    assert!(proxied.connection_check(UrlSource::Model)("other.corp", [10, 0, 0, 1].into()).is_err());
}

#[tokio::test]
async fn a_url_to_the_host_of_a_proxy_is_judged_like_any_other() {
    let proxied = reach(&[("HTTPS_PROXY", "http://LocalHost:3128"), ("HTTP_PROXY", "surely-not-there.invalid:1")]);
    for port in [80, 3128, 9200] {
        let url = format!("http://localhost:{port}/");
        assert!(!admits(&proxied, &url, UrlSource::Model).await, "{url}");
        assert!(admits(&proxied, &url, UrlSource::Tool).await, "{url}");
    }
    assert!(!admits(&proxied, "http://surely-not-there.invalid/", UrlSource::Model).await, "it may resolve later");
}

#[tokio::test]
async fn a_list_opens_private_addresses_to_models_and_never_a_metadata_service() {
    let listed = r#"{"listed": ["10.1.0.0/16:80", "169.254.169.254:80", "127.0.0.1:9000", "*.example.com:443"],
        "own": ["10.2.0.1:80", "inner.svc:80"]}"#;
    let reach = EgressPolicy::new(&move |name: &str| (name == "RECIF_EGRESS").then(|| listed.to_owned()));
    for (url, tool, model) in [
        ("http://10.1.2.3/", true, true),
        ("http://10.2.0.1/", true, false),
        ("http://10.3.0.1/", false, false),
        ("http://169.254.169.254/latest/meta-data/", false, false),
        ("http://127.0.0.1:9000/", true, false),
        ("https://api.example.com/", true, true),
        ("https://example.org/", false, false),
    ] {
        assert_eq!(admits(&reach, url, UrlSource::Tool).await, tool, "{url} of a Tool");
        assert_eq!(admits(&reach, url, UrlSource::Model).await, model, "{url} of a model");
    }
    // A listed name that leads elsewhere when the connection is made (DNS rebinding).
    for (address, tool, model) in [
        ([169_u8, 254, 169, 254], false, false),
        ([127, 0, 0, 1], false, false),
        ([10, 3, 0, 1], true, false),
        ([10, 1, 0, 1], true, true),
        ([8, 8, 8, 8], true, true),
    ] {
        let is_admitted = |who| reach.connection_check(who)("api.example.com", address.into()).is_ok();
        assert_eq!(is_admitted(UrlSource::Tool), tool, "{address:?} of a Tool");
        assert_eq!(is_admitted(UrlSource::Model), model, "{address:?} of a model");
    }
}

#[test]
fn an_own_address_is_known() {
    assert!(is_own([127, 0, 0, 1].into()));
    assert!(!is_own([192, 0, 2, 1].into()));
}
