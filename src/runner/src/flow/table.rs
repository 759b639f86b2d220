//! Which path leads to which prompt.
//!
//! Paths are compared as they are: names hold no character that a URL escapes.

use std::{collections::HashMap, sync::Arc};

use super::{
    endpoint::{Flow, PromptEndpoint},
    manifest::RESERVED,
    problem::{FlowProblem, join_problems},
};

/// The `flow` label of metrics; there are only as many as there are flows.
pub(super) type Label = Arc<String>;

/// All routes.
pub(super) struct RouteTable {
    routes: HashMap<String, Route>,
    /// All paths, for who asks for another.
    known_paths: String,
    /// Why nothing at all can be served, and the label it counts under.
    broken: Option<(Label, String)>,
}

struct Route {
    label: Label,
    target: Result<Arc<PromptEndpoint>, String>,
}

/// A name, and what is asked under it, or why it cannot be.
pub(super) type NamedEndpoint<'a> = (&'a str, Result<&'a Arc<PromptEndpoint>, &'a str>);

/// What a path leads to.
pub(super) enum RouteMatch<'a> {
    /// A prompt.
    Endpoint(&'a Label, &'a Arc<PromptEndpoint>),
    /// A flow that cannot be served, with the reason.
    Broken(&'a Label, &'a str),
    /// No route; all that there are.
    NotFound(&'a str),
}

impl RouteTable {
    /// The routes of one flow; `name` is its own. A prompt of that name is only reached when it is the entry.
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

    /// The routes of a set.
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

    /// No routes, because of `problems`.
    pub(super) fn broken(label: &str, problems: &[FlowProblem]) -> Self {
        Self { broken: Some((Label::new(label.into()), join_problems(problems))), ..Self::new(HashMap::new()) }
    }

    fn new(routes: HashMap<String, Route>) -> Self {
        let mut known: Vec<_> = routes.keys().map(String::as_str).collect();
        known.sort_unstable();
        Self { known_paths: known.join(", "), routes, broken: None }
    }

    /// All that has a name, by path without the first `/`: what can be asked, or why it cannot.
    ///
    /// # Errors
    /// Why nothing can be asked.
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

    /// What `path` leads to.
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

    /// The flow in error that `path` is a prompt of: which prompts it has is not known.
    fn flow_in_error(&self, path: &str) -> Option<&Route> {
        let (flow, _) = path.strip_prefix('/')?.split_once('/')?;
        self.routes.get(&path[..=flow.len()]).filter(|route| route.target.is_err())
    }
}

/// Why `name` cannot be a route.
pub(super) fn reserved(name: &str) -> Option<String> {
    RESERVED.contains(&name).then(|| format!("`{name}` is a route of the runtime's own; use another name"))
}
