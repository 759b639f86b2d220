//! Deployment of operator, gateway and control plane before the scenarios, and by those that take it away.

use anyhow::{Context as _, Result};

use crate::{env::Env, gateway, operator};

/// Deploys operator and gateway, if an image was given.
pub(crate) async fn deploy(env: &Env) -> Result<()> {
    let Some(image) = &env.paths.operator_image else { return Ok(()) };
    install(env, image).await
}

/// Returns the manifests of config/default with this image.
pub(crate) async fn default_manifests(env: &Env, image: &str) -> Result<String> {
    let folder = env.file("config/default");
    let folder = folder.to_str().context("a path that is text")?;
    Ok(env.kubectl(&["kustomize", folder]).await?.replace("recif.local/operator:dev", image))
}

/// Applies config/default with this image, and waits until operator and gateway are ready.
pub(crate) async fn install(env: &Env, image: &str) -> Result<()> {
    let manifests = default_manifests(env, image).await?;
    let arguments = ["apply", "--server-side", "--force-conflicts", "--filename", "-"];
    env.kubectl_with(&arguments, manifests).await?;
    if env.paths.lose_wakes {
        let deployment = format!("deployment/{}", operator::NAME);
        env.kubectl(&["--namespace", operator::NAMESPACE, "set", "env", &deployment, "RECIF_LOSE_WAKES=true"]).await?;
    }
    operator::ready(env, operator::replicas(env).await?).await?;
    gateway::ready(env, 0).await
}
