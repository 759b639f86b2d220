//! Resolves the methods of both versions of the protocol to one set of operations.

use ::a2a::Version;

use super::rpc::RpcError;

/// Operation that a method names, the same in both versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum A2aOperation {
    /// Sends a message and returns its task.
    Send,
    /// Sends a message and streams events.
    Stream,
    /// Returns a task.
    Get,
    /// Cancels a task.
    Cancel,
    /// Streams the events of a running task.
    Subscribe,
    /// Lists tasks.
    List,
    /// Any operation on push notification configurations; not supported.
    PushNotifications,
    /// Known and not offered, with the reason.
    Unsupported(&'static str),
}

impl A2aOperation {
    /// Returns the name of the operation in version 1.0, for its span.
    pub(super) fn standard_name(self) -> &'static str {
        match self {
            Self::Send => "SendMessage",
            Self::Stream => "SendStreamingMessage",
            Self::Get => "GetTask",
            Self::Cancel => "CancelTask",
            Self::Subscribe => "SubscribeToTask",
            Self::List => "ListTasks",
            Self::PushNotifications => "CreateTaskPushNotificationConfig",
            Self::Unsupported(_) => "GetExtendedAgentCard",
        }
    }
}

const NO_LIST: &str = "tasks are listed by `ListTasks`, of version 1.0";

const NO_CARD: &str = "there is no extended agent card";

/// Known methods: name, version, operation.
const METHODS: [(&str, Version, A2aOperation); 22] = [
    ("SendMessage", Version::V1, A2aOperation::Send),
    ("SendStreamingMessage", Version::V1, A2aOperation::Stream),
    ("GetTask", Version::V1, A2aOperation::Get),
    ("CancelTask", Version::V1, A2aOperation::Cancel),
    ("SubscribeToTask", Version::V1, A2aOperation::Subscribe),
    ("ListTasks", Version::V1, A2aOperation::List),
    ("CreateTaskPushNotificationConfig", Version::V1, A2aOperation::PushNotifications),
    ("GetTaskPushNotificationConfig", Version::V1, A2aOperation::PushNotifications),
    ("ListTaskPushNotificationConfigs", Version::V1, A2aOperation::PushNotifications),
    ("DeleteTaskPushNotificationConfig", Version::V1, A2aOperation::PushNotifications),
    ("GetExtendedAgentCard", Version::V1, A2aOperation::Unsupported(NO_CARD)),
    ("message/send", Version::V03, A2aOperation::Send),
    ("message/stream", Version::V03, A2aOperation::Stream),
    ("tasks/get", Version::V03, A2aOperation::Get),
    ("tasks/cancel", Version::V03, A2aOperation::Cancel),
    ("tasks/resubscribe", Version::V03, A2aOperation::Subscribe),
    ("tasks/list", Version::V03, A2aOperation::Unsupported(NO_LIST)),
    ("tasks/pushNotificationConfig/set", Version::V03, A2aOperation::PushNotifications),
    ("tasks/pushNotificationConfig/get", Version::V03, A2aOperation::PushNotifications),
    ("tasks/pushNotificationConfig/list", Version::V03, A2aOperation::PushNotifications),
    ("tasks/pushNotificationConfig/delete", Version::V03, A2aOperation::PushNotifications),
    ("agent/getAuthenticatedExtendedCard", Version::V03, A2aOperation::Unsupported(NO_CARD)),
];

/// Resolves `method` to its version and operation. `header` is `A2A-Version`; without it the method's own version
/// applies.
///
/// # Errors
/// The method is unknown, or does not exist in the version of the header.
pub(super) fn method(method: &str, header: Option<&str>) -> Result<(Version, A2aOperation), RpcError> {
    let known = METHODS.iter().find(|(name, ..)| *name == method);
    let &(_, version, operation) = known.ok_or_else(|| RpcError::Method(method.into()))?;
    let wanted = header.map(str::trim).filter(|wanted| !wanted.is_empty());
    let fits = wanted.is_none_or(|wanted| {
        let mut numbers = wanted.split('.');
        let (major, minor) = (numbers.next(), numbers.next());
        match version {
            // A later 1.x is accepted: unknown fields are ignored.
            Version::V1 => major == Some("1"),
            Version::V03 => (major, minor) == (Some("0"), Some("3")),
        }
    });
    match wanted {
        Some(wanted) if !fits => Err(RpcError::Version(wanted.into())),
        _ => Ok((version, operation)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_has_a_version_and_the_header_must_agree() {
        use {A2aOperation::*, Version::*};
        assert_eq!(method("SendMessage", None), Ok((V1, Send)));
        assert_eq!(method("SendMessage", Some("1.0")), Ok((V1, Send)));
        assert_eq!(method("SendMessage", Some("1.7.1")), Ok((V1, Send)));
        assert_eq!(method("message/stream", Some("0.3.0")), Ok((V03, Stream)));
        assert_eq!(method("message/stream", Some(" ")), Ok((V03, Stream)));
        assert_eq!(method("tasks/resubscribe", None), Ok((V03, Subscribe)));
        for (name, header) in [("SendMessage", "0.3"), ("SendMessage", "2.0"), ("tasks/get", "1.0"), ("GetTask", "x")] {
            assert_eq!(method(name, Some(header)), Err(RpcError::Version(header.into())), "{name}");
        }
        assert_eq!(method("sendMessage", None), Err(RpcError::Method("sendMessage".into())));
    }
}
