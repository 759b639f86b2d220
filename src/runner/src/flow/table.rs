//! Route table: maps paths to prompts.
//!
//! Paths are compared without decoding: names contain no character that a URL percent-encodes.

use std::{collections::HashMap, sync::Arc};

use super::{
    endpoint::{Flow, PromptEndpoint},
    manifest::RESERVED,
    problem::{FlowProblem, join_problems},
};

/// Value of the metric label `flow`; its cardinality is the number of flows.
pub(super) type Label = Arc<String>;

/// All routes.
pub(super) struct RouteTable {
    routes: HashMap<String, Route>,
    /// List of all paths, for 404 responses.
    known_paths: String,
    /// Reason why nothing can be served, and the label under which such responses are counted.
    broken: Option<(Label, String)>,
}

struct Route {
    label: Label,
    target: Result<Arc<PromptEndpoint>, String>,
}

/// Name of an endpoint, with the endpoint or the reason why it cannot be served.
pub(super) type NamedEndpoint<'a> = (&'a str, Result<&'a Arc<PromptEndpoint>, &'a str>);

/// Result of a route lookup.
pub(super) enum RouteMatch<'a> {
    /// Prompt that serves the path.
    Endpoint(&'a Label, &'a Arc<PromptEndpoint>),
    /// Flow that cannot be served, with the reason.
    Broken(&'a Label, &'a str),
    /// No such route; holds the list of all paths.
    NotFound(&'a str),
}

impl RouteTable {
    /// Builds the routes of one flow called `name`. A prompt of that name is only reachable when it is the entry
    /// prompt.
    pub(super) fn of_one(name: Option<&str>, flow: Result<Flow, Vec<FlowProblem>>) -> Self {
        let label = Label::new(name.unwrap_or("flow").to_owned());
        let flow = match flow {
            Ok(flow) => flow,
            Err(problems) => {
                return Self { broken: Some((label, join_problems(&problems))), ..Self::new(HashMap::new()) };
            }
        };
        let mut routes = HashMap::new();
        let mut add = |path: String, endpoint: &Arc<PromptEndpoint>| {
            routes.insert(path, Route { label: label.clone(), target: Ok(endpoint.clone()) });
        };
        for (prompt, endpoint) in &flow.prompts {
            add(format!("/{prompt}"), endpoint);
        }
        for path in std::iter::once(String::from("/")).chain(name.map(|name| format!("/{name}"))) {
            add(path, &flow.entry);
        }
        Self::new(routes)
    }

    /// Builds the routes of a set.
    pub(super) fn of_set(flows: Vec<(String, Result<Flow, Vec<FlowProblem>>)>) -> Self {
        let mut routes = HashMap::new();
        for (name, flow) in flows {
            let label = Label::new(name);
            let target = match flow {
                Ok(flow) => {
                    for (prompt, endpoint) in flow.prompts {
                        let path = format!("/{label}/{prompt}");
                        routes.insert(path, Route { label: label.clone(), target: Ok(endpoint) });
                    }
                    Ok(flow.entry)
                }
                Err(problems) => Err(join_problems(&problems)),
            };
            routes.insert(format!("/{label}"), Route { label, target });
        }
        Self::new(routes)
    }

    /// Builds an empty table, because of `problems`.
    pub(super) fn broken(label: &str, problems: &[FlowProblem]) -> Self {
        Self { broken: Some((Label::new(label.into()), join_problems(problems))), ..Self::new(HashMap::new()) }
    }

    fn new(routes: HashMap<String, Route>) -> Self {
        let mut known: Vec<_> = routes.keys().map(String::as_str).collect();
        known.sort_unstable();
        Self { known_paths: known.join(", "), routes, broken: None }
    }

    /// Returns all named endpoints, by path without the first `/`, or the reason why one cannot be served.
    ///
    /// # Errors
    /// The reason why nothing can be served.
    pub(super) fn endpoints(&self) -> Result<Vec<NamedEndpoint<'_>>, &str> {
        if let Some((_, why)) = &self.broken {
            return Err(why);
        }
        let mut named = Vec::new();
        for (path, route) in &self.routes {
            let name = path.trim_start_matches('/');
            if !name.is_empty() {
                named.push((name, route.target.as_ref().map_err(String::as_str)));
            }
        }
        named.sort_unstable_by_key(|(name, _)| *name);
        Ok(named)
    }

    /// Looks up `path`.
    pub(super) fn find(&self, path: &str) -> RouteMatch<'_> {
        if let Some((label, why)) = &self.broken {
            return RouteMatch::Broken(label, why);
        }
        match self.routes.get(path).or_else(|| self.flow_in_error(path)) {
            Some(Route { label, target: Ok(endpoint) }) => RouteMatch::Endpoint(label, endpoint),
            Some(Route { label, target: Err(why) }) => RouteMatch::Broken(label, why),
            None => RouteMatch::NotFound(&self.known_paths),
        }
    }

    /// Returns the flow in error to which `path` belongs as a prompt: its prompts are unknown.
    fn flow_in_error(&self, path: &str) -> Option<&Route> {
        let (flow, _) = path.strip_prefix('/')?.split_once('/')?;
        self.routes.get(&path[..=flow.len()]).filter(|route| route.target.is_err())
    }
}

/// Returns the reason why `name` cannot be a route, if it is reserved.
pub(super) fn reserved(name: &str) -> Option<String> {
    RESERVED.contains(&name).then(|| format!("`{name}` is a route of the runtime's own; use another name"))
}
