//! Checks what agents of other frameworks send in Agent2Agent: their cards, and their answers.

use a2a::{A2aInterface, A2aTurn};
use url::Url;

/// Checks that a card leads to no other host and nowhere above the address of its agent, and that an answer that is refused changes
/// nothing. Each line of the input is an answer.
pub fn agent_answers(bytes: &[u8]) {
    for base in ["", "/v1/agents/ns/x"] {
        let Ok(found) = A2aInterface::choose(bytes, base) else { continue };
        let rest = found.path.strip_prefix(base);
        assert!(rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')), "{found:?} below {base:?}");
        let mut url = Url::parse("http://agent.example:8000/?key=a").expect("a URL");
        url.set_path(&found.path);
        let parts = (url.host_str(), url.port(), url.query(), url.fragment());
        assert_eq!(parts, (Some("agent.example"), Some(8000), Some("key=a"), None), "{found:?}");
        assert!(url.path().starts_with(base), "{url}");
    }
    let Ok(text) = str::from_utf8(bytes) else { return };
    let mut turn = A2aTurn::default();
    for line in text.lines() {
        let before = turn.clone();
        if turn.read(line).is_err() {
            assert_eq!(turn, before, "{line}");
        }
        assert!(turn.failure().is_none() || !turn.is_working(), "{turn:?}");
    }
}
