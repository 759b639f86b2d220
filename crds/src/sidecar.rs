//! Names and ports of the sidecar of a Pod.

/// Port of the sidecar as it is rendered. A Pod says in its spec where its own listens: [`proxy_port`].
pub const PROXY_PORT: i32 = 8888;
/// Name of the sidecar's container.
pub const PROXY_CONTAINER: &str = "proxy";
/// Name of the sidecar's port.
pub const PROXY_PORT_NAME: &str = "http";
/// Name of the workload's port behind the sidecar.
pub const UPSTREAM_PORT_NAME: &str = "agent";
/// Path at which the sidecar reports to a gateway whether its Pod can serve, before the kubelet does.
pub const READY_PATH: &str = "/_recif/ready";

/// Returns the port at which a Pod's sidecar listens, from the ports of its containers: each with the container's name,
/// its own name, and its number. The sidecar declares it, or after its own port the workload's container. Pods that share an
/// address have different ones; the default is [`PROXY_PORT`].
pub fn proxy_port<'a>(ports: impl IntoIterator<Item = (&'a str, Option<&'a str>, i32)>) -> u16 {
    const RENDERED: u16 = PROXY_PORT as u16;
    let mut workload = None;
    let declared = ports.into_iter().find_map(|(container, name, number)| {
        if name == Some(UPSTREAM_PORT_NAME) {
            workload = Some(container);
        }
        let is_proxy = container == PROXY_CONTAINER || workload == Some(container);
        u16::try_from(number).ok().filter(|number| is_proxy && name == Some(PROXY_PORT_NAME) && *number > 0)
    });
    declared.unwrap_or(RENDERED)
}
