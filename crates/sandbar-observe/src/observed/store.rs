use async_trait::async_trait;
use futures::stream::BoxStream;
use sandbar_core::{
    BuildLog, BuildSpec, Builds, CommitOptions, EgressCheck, EgressVerdict, ProviderExt, Result, Template,
    TemplateId, Templates, VerifyOptions, VolumeInfo, VolumeName, VolumeQuery, Volumes,
};
use serde_json::json;

use super::{Observed, Operation, Target};
use crate::event::details;

#[async_trait]
impl Templates for Observed {
    async fn commit(&self, options: CommitOptions) -> Result<Template> {
        let target = Target { sandbox: Some(options.sandbox.clone()), project: None };
        let operation =
            Operation::begin(&self.observation, self.inner.name(), "commit_template", &target, |detail| {
                detail.insert("template".into(), details::word(options.template.as_str()));
            })
            .await?;
        let work = async { self.inner.require_templates()?.commit(options).await };
        let done = operation.cause(work).await;
        operation.end(done).await
    }

    async fn get(&self, id: &TemplateId) -> Result<Option<Template>> {
        self.inner.require_templates()?.get(id).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Template>> {
        self.inner.require_templates()?.list(prefix).await
    }

    async fn remove(&self, id: &TemplateId) -> Result<bool> {
        let operation = self
            .begin("remove_template", |detail| {
                detail.insert("template".into(), details::word(id.as_str()));
            })
            .await?;
        let work = async { self.inner.require_templates()?.remove(id).await };
        let done = operation.cause(work).await;
        operation.end(done).await
    }
}

#[async_trait]
impl Builds for Observed {
    async fn build(&self, spec: BuildSpec) -> Result<BoxStream<'static, Result<BuildLog>>> {
        let operation = self
            .begin("build", |detail| {
                detail.insert("template".into(), details::word(spec.template.as_str()));
                detail.insert("steps".into(), spec.steps.len().into());
            })
            .await?;
        let work = async { self.inner.require_builds()?.build(spec).await };
        let done = operation.cause(work).await;
        operation.end(done).await
    }
}

#[async_trait]
impl Volumes for Observed {
    async fn create(&self, name: &VolumeName) -> Result<bool> {
        let operation = self
            .begin("create_volume", |detail| {
                detail.insert("volume".into(), details::word(name.as_str()));
            })
            .await?;
        let work = async { self.inner.require_volumes()?.create(name).await };
        let done = operation.cause(work).await;
        operation.end(done).await
    }

    async fn exists(&self, name: &VolumeName) -> Result<bool> {
        self.inner.require_volumes()?.exists(name).await
    }

    async fn list(&self, query: VolumeQuery) -> Result<Vec<VolumeInfo>> {
        self.inner.require_volumes()?.list(query).await
    }

    async fn remove(&self, name: &VolumeName) -> Result<bool> {
        let operation = self
            .begin("remove_volume", |detail| {
                detail.insert("volume".into(), details::word(name.as_str()));
            })
            .await?;
        let work = async { self.inner.require_volumes()?.remove(name).await };
        let done = operation.cause(work).await;
        operation.end(done).await
    }
}

#[async_trait]
impl EgressCheck for Observed {
    async fn verify(&self, options: VerifyOptions) -> Result<EgressVerdict> {
        let told = json!(options.policy);
        let operation =
            self.begin("verify_egress", |detail| drop(detail.insert("egress".into(), told))).await?;
        let work = async { self.inner.require_egress()?.verify(options).await };
        let done = operation.cause(work).await;
        operation.end(done).await
    }
}
