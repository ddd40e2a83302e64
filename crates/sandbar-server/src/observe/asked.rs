use std::time::Instant;

use http::{Method, Request, StatusCode};
use sandbar_wire::envd::ENVD_PORT;

use super::Plane;
use crate::app::App;
use crate::error::ApiResult;
use crate::guest::Route;

/// What guests are asked for. Whoever asks chooses the path, and each word here is a series: what is not among these is [`OTHER`].
const GUEST_ROUTES: &[&str] = &[
    "/health",
    "/metrics",
    "/envs",
    "/files",
    "/files/compose",
    "/process.Process/List",
    "/process.Process/Connect",
    "/process.Process/Start",
    "/process.Process/Update",
    "/process.Process/StreamInput",
    "/process.Process/SendInput",
    "/process.Process/SendSignal",
    "/process.Process/CloseStdin",
    "/filesystem.Filesystem/Stat",
    "/filesystem.Filesystem/MakeDir",
    "/filesystem.Filesystem/Move",
    "/filesystem.Filesystem/ListDir",
    "/filesystem.Filesystem/Remove",
    "/filesystem.Filesystem/WatchDir",
    "/filesystem.Filesystem/CreateWatcher",
    "/filesystem.Filesystem/GetWatcherEvents",
    "/filesystem.Filesystem/RemoveWatcher",
];

/// Anything else that a guest is asked for.
const OTHER: &str = "other";

/// Whatever a port is asked for: its paths are its own.
const ANY: &str = "any";

/// What names no sandbox and nothing of the control plane.
const UNROUTED: &str = "unrouted";

/// A request that is not the control plane's, until it is answered.
#[derive(Debug)]
pub(crate) struct Asked {
    plane: Plane,
    route: &'static str,
    method: Method,
    begun: Instant,
    /// For the log, where it says more than errors.
    sandbox: Option<(String, u16)>,
}

impl Asked {
    pub(crate) fn of<B>(route: &ApiResult<Route>, request: &Request<B>) -> Self {
        let (plane, route, sandbox) = match route {
            Ok(Route::Sandbox { port, id }) if *port == ENVD_PORT => {
                (Plane::Guest, guest_route(request.uri().path()), Some((id, *port)))
            }
            Ok(Route::Sandbox { port, id }) => (Plane::Port, ANY, Some((id, *port))),
            Ok(Route::Signed) => (Plane::Guest, "/files", None),
            Ok(Route::Control) | Err(_) => (Plane::Control, UNROUTED, None),
        };
        let sandbox =
            sandbox.filter(|_| tracing::enabled!(tracing::Level::DEBUG)).map(|(id, port)| (id.clone(), port));
        Self { plane, route, method: request.method().clone(), begun: Instant::now(), sandbox }
    }

    /// Counts it, and tells whoever wants to know more. Its path is not told where it is the sandbox' own: anything may stand in it.
    pub(crate) fn answered(self, app: &App, status: StatusCode) {
        let Self { plane, route, method, begun, sandbox } = self;
        let took = begun.elapsed();
        app.counts.answered(plane, route, status, took);
        if let Some((sandbox, port)) = sandbox {
            let millis = took.as_millis();
            tracing::debug!(%method, sandbox, port, route, status = status.as_u16(), millis, "answered");
        }
    }
}

fn guest_route(path: &str) -> &'static str {
    GUEST_ROUTES.iter().find(|route| **route == path).copied().unwrap_or(OTHER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_a_series_only_if_it_is_known() {
        assert_eq!(guest_route("/process.Process/Start"), "/process.Process/Start");
        for made_up in ["/process.Process/Start2", "/files/../x", "", "/files/"] {
            assert_eq!(guest_route(made_up), OTHER);
        }
    }

    #[test]
    fn a_request_is_of_the_plane_that_answers_it() {
        let sandbox = |port| Ok(Route::Sandbox { id: "s1".into(), port });
        let request = Request::get("/health").body(()).unwrap();
        for (route, plane, name) in [
            (sandbox(ENVD_PORT), Plane::Guest, "/health"),
            (sandbox(8080), Plane::Port, ANY),
            (Ok(Route::Signed), Plane::Guest, "/files"),
            (Err(crate::error::ApiError::bad_request("x")), Plane::Control, UNROUTED),
        ] {
            let asked = Asked::of(&route, &request);
            assert_eq!((asked.plane, asked.route), (plane, name));
        }
    }
}
