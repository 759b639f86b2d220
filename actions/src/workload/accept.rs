//! Validates a new workload; action `accept`, Pending → Resolving. Checks the spec beyond what the CRD can, before anything else
//! is done.

use std::sync::Arc;

use async_trait::async_trait;
use crds::WorkloadPhase;
use machine::{Action, ActionError};

use super::{egress, kind::WorkloadKind};
use crate::{deps::Deps, kind::Context};

/// Action `accept`; see the module.
#[derive(Debug)]
pub struct Accept;

#[async_trait]
impl<K: WorkloadKind> Action<K, Deps> for Accept {
    fn name(&self) -> &'static str {
        "accept"
    }

    fn phases(&self) -> &'static [WorkloadPhase] {
        &[WorkloadPhase::Pending]
    }

    async fn handle(&self, cx: &Context, cr: Arc<K>) -> Result<Option<K>, ActionError> {
        egress::entries(cr.as_ref())?;
        cr.validate(&cx.settings)?;
        Ok(Some(cr.moved_to(WorkloadPhase::Resolving)))
    }
}
