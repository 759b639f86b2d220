// The documentation of the crate shows this file and runs it, and the tests of the crate use its lamp. So it names the crate from outside.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use machine::{Action, ActionError, ApiError, Context, Edge, EdgeFrom, NamespaceReader, ObjectClient, Rule, Table};
use meta::{CommonStatus, Key, Phase, PhaseClass, PhasedObject};
use serde_json::{Value, from_value, json};

/// Phases of a lamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LampPhase {
    /// It waits for power.
    Pending,
    /// It shines.
    Lit,
    /// Its bulb burnt out.
    Broken,
}

impl Phase for LampPhase {
    const ALL: &'static [Self] = &[Self::Pending, Self::Lit, Self::Broken];
    const FIRST: Self = Self::Pending;
    const FAILED: Self = Self::Broken;
    const TERMINATING: Option<Self> = None;

    fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Lit => "Lit",
            Self::Broken => "Broken",
        }
    }

    fn class(self) -> PhaseClass {
        match self {
            Self::Pending => PhaseClass::Progressing,
            Self::Lit => PhaseClass::Settled,
            Self::Broken => PhaseClass::Failed,
        }
    }

    fn default_message(self) -> &'static str {
        "it waits for power"
    }
}

impl fmt::Display for LampPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Object of the kind; its spec is the wattage of the bulb.
#[derive(Debug, Clone, Default)]
pub struct Lamp {
    metadata: ObjectMeta,
    watts: u32,
    status: Option<CommonStatus>,
}

impl Lamp {
    /// Creates the lamp `name` as a user does: without a status.
    pub fn new(name: &str, watts: u32) -> Self {
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        Self { metadata, watts, status: None }
    }
}

impl PhasedObject for Lamp {
    type Phase = LampPhase;

    const KIND: &'static str = "Lamp";
    const CRD: &'static str = "lamps.example.com";
    const FINALIZER: Option<&'static str> = None;

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }

    fn common(&self) -> Option<&CommonStatus> {
        self.status.as_ref()
    }

    fn common_mut(&mut self) -> &mut CommonStatus {
        self.status.get_or_insert_default()
    }

    fn status_json(&self) -> Value {
        json!(self.status)
    }

    fn spec_digest(&self) -> String {
        self.watts.to_string()
    }

    fn same_spec(&self, other: &Self) -> bool {
        self.watts == other.watts
    }
}

/// State machine of the kind.
pub const TABLE: Table<LampPhase> = Table {
    edges: &[
        Edge::rule(EdgeFrom::Nothing, LampPhase::Pending, Rule::Admit, "first seen"),
        Edge::new(LampPhase::Pending, LampPhase::Lit, "switch", "it has power"),
        Edge::new(LampPhase::Lit, LampPhase::Pending, "switch", "the power is gone"),
        Edge::rule(EdgeFrom::In(LampPhase::Pending), LampPhase::Broken, Rule::Fail, "the bulb burnt out"),
        Edge::rule(EdgeFrom::In(LampPhase::Lit), LampPhase::Pending, Rule::SpecChanged, "it has another bulb"),
        Edge::rule(EdgeFrom::In(LampPhase::Broken), LampPhase::Pending, Rule::SpecChanged, "it has another bulb"),
    ],
    render_version: 1,
    not_retryable: &["BurntOut"],
    conditions: &[],
    available_follows_ready: true,
    decision_paths: &[],
};

/// Port of the actions to the world outside: the power supply of the lamps.
#[derive(Debug, Default)]
pub struct PowerSupply(AtomicBool);

impl PowerSupply {
    /// Turns the power on or off.
    pub fn set(&self, on: bool) {
        self.0.store(on, Ordering::Relaxed);
    }

    /// Reports whether there is power.
    pub fn is_on(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl NamespaceReader for PowerSupply {
    /// The world of the lamps has one namespace, which stays.
    fn is_namespace_going(&self, _: &str) -> bool {
        false
    }
}

/// Action that lights a lamp while there is power.
#[derive(Debug)]
pub struct Switch;

#[async_trait]
impl Action<Lamp, PowerSupply> for Switch {
    fn name(&self) -> &'static str {
        "switch"
    }

    fn phases(&self) -> &'static [LampPhase] {
        LampPhase::ALL
    }

    async fn handle(&self, cx: &Context<PowerSupply>, lamp: Arc<Lamp>) -> Result<Option<Lamp>, ActionError> {
        match lamp.phase() {
            Some(LampPhase::Pending) if !cx.is_on() => {
                cx.notes.waiting("NoPower", "it waits for the power supply");
                Ok(None)
            }
            Some(LampPhase::Pending) if lamp.watts > 100 => {
                Err(ActionError::terminal("BurntOut", "the bulb burnt out; set spec.watts to at most 100"))
            }
            Some(LampPhase::Pending) => Ok(Some(lamp.moved_to(LampPhase::Lit))),
            Some(LampPhase::Lit) if !cx.is_on() => Ok(Some(lamp.moved_to(LampPhase::Pending))),
            _ => Ok(None),
        }
    }
}

/// API server with one lamp, in memory.
#[derive(Debug)]
pub struct OneLamp(Mutex<Arc<Lamp>>);

impl OneLamp {
    /// Stores the lamp.
    pub fn new(lamp: Lamp) -> Self {
        Self(Mutex::new(Arc::new(lamp)))
    }

    fn lock(&self) -> MutexGuard<'_, Arc<Lamp>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies a JSON Patch: as a whole, or not at all if one of its `test` operations fails.
    fn patch(&self, key: &Key, patch: &Value) -> Result<Arc<Lamp>, ApiError> {
        let mut stored = self.lock();
        if stored.key() != *key {
            return Err(ApiError::NotFound);
        }
        let mut object = json!({ "metadata": stored.metadata, "status": stored.status });
        for change in patch.as_array().into_iter().flatten() {
            let (parent, field) = change["path"].as_str().and_then(|path| path.rsplit_once('/')).unwrap_or_default();
            let parent = object.pointer_mut(parent).and_then(Value::as_object_mut).ok_or(ApiError::Stale)?;
            match change["op"].as_str() {
                Some("add") => drop(parent.insert(field.to_owned(), change["value"].clone())),
                Some("remove") => drop(parent.remove(field)),
                _ if *parent.get(field).unwrap_or(&Value::Null) == change["value"] => {}
                _ => return Err(ApiError::Stale),
            }
        }
        let invalid = |error: serde_json::Error| ApiError::Invalid(error.to_string());
        let mut next = Lamp {
            metadata: from_value(object["metadata"].take()).map_err(invalid)?,
            watts: stored.watts,
            status: from_value(object["status"].take()).map_err(invalid)?,
        };
        next.metadata.resource_version = Some((stored.version().unwrap_or_default() + 1).to_string());
        *stored = Arc::new(next);
        Ok(stored.clone())
    }
}

#[async_trait]
impl ObjectClient<Lamp> for OneLamp {
    fn newest(&self, key: &Key) -> Option<Arc<Lamp>> {
        Some(self.lock().clone()).filter(|lamp| lamp.key() == *key)
    }

    async fn patch_status(&self, key: &Key, patch: Value) -> Result<Arc<Lamp>, ApiError> {
        self.patch(key, &patch)
    }

    async fn patch_metadata(&self, key: &Key, patch: Value) -> Result<Option<Arc<Lamp>>, ApiError> {
        self.patch(key, &patch).map(Some)
    }
}
