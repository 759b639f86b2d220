//! Chooses the image of an agent's container: the spec's, or, where that is the default, the operator's `--agent-image`.
//!
//! The operator's image is pinned when the template is first rendered, as that of the sidecar is. A template that was rendered
//! without such a pin, by an operator without the flag, keeps the default image until it changes for another reason.

use crds::{Agent, agent::DEFAULT_IMAGE};

use crate::render::{AGENT, RenderSettings};

/// Returns the image that the operator offers at this moment; `None` if the spec names another one, or the operator has none.
pub(super) fn offered<'a>(agent: &Agent, settings: &'a RenderSettings) -> Option<&'a str> {
    let wanted = agent.spec.image == DEFAULT_IMAGE && !settings.agent_image.is_empty();
    wanted.then_some(settings.agent_image.as_str())
}

/// Returns the image that comes from the operator: the pinned one, or the offered one if no template was rendered yet.
pub(super) fn of_operator<'a>(agent: &'a Agent, settings: &'a RenderSettings) -> Option<&'a str> {
    if agent.spec.image != DEFAULT_IMAGE {
        return None;
    }
    let status = agent.status.as_ref();
    let pinned = status.and_then(|status| status.images.get(AGENT)).map(String::as_str);
    let rendered = status.is_some_and(|status| status.template.is_some());
    pinned.or_else(|| offered(agent, settings).filter(|_| !rendered))
}

/// Reports whether the container runs Récif's runner: as the default, or because the spec names the operator's image of it.
pub(super) fn is_runner(agent: &Agent, settings: &RenderSettings) -> bool {
    agent.spec.image == DEFAULT_IMAGE || of_container(agent, settings) == settings.runner_image
}

/// Reports whether the container is known to run Récif's runner: the spec names the operator's image of it, or that is the default. A
/// default that is another image may be anything. One that an older operator pinned stays known: a tool that the template gets later
/// replaces it.
pub(super) fn is_known_runner(agent: &Agent, settings: &RenderSettings) -> bool {
    let image = if agent.spec.image == DEFAULT_IMAGE { &settings.agent_image } else { &agent.spec.image };
    *image == settings.runner_image
}

/// Returns the image of the container.
pub(super) fn of_container<'a>(agent: &'a Agent, settings: &'a RenderSettings) -> &'a str {
    of_operator(agent, settings).unwrap_or(&agent.spec.image)
}
