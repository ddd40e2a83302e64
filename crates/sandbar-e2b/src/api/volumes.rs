use http::Method;
use sandbar_core::Result;
use sandbar_http::{Idempotency, Response};
use sandbar_wire::e2b::{NewVolume, Volume};

use super::client::{Api, segment};

impl Api {
    /// All volumes. On accounts without them the API says 403, which is an error like any other.
    pub(crate) async fn volumes(&self, operation: &'static str) -> Result<Vec<Volume>> {
        let request = self.request(operation, Method::GET, "/volumes");
        self.succeed(operation, request).await?.json()
    }

    /// Makes a volume; whatever the status, its answer.
    pub(crate) async fn create_volume(&self, operation: &'static str, name: &str) -> Result<Response> {
        let request =
            self.request(operation, Method::POST, "/volumes").with_json(&NewVolume { name: name.to_owned() });
        self.send(operation, request).await
    }

    /// Removes a volume by its id; whatever the status, its answer.
    pub(crate) async fn remove_volume(&self, operation: &'static str, id: &str) -> Result<Response> {
        let path = format!("/volumes/{}", segment(id));
        let request = self.request(operation, Method::DELETE, &path).with_idempotency(Idempotency::Safe);
        self.send(operation, request).await
    }
}
