//! Templates: where they come from, what sandboxes of them are like, and when they go.

use sandbar_core::{ErrorKind, ProviderExt, TemplateId};

use crate::support::Bed;

#[tokio::test]
async fn the_built_in_one_is_listed_and_stays() {
    let Some(bed) = Bed::new() else { return };
    let provider = bed.provider();
    let templates = provider.require_templates().unwrap();
    let host = TemplateId::new("host").unwrap();
    assert!(!templates.get(&host).await.unwrap().unwrap().in_use);
    assert_eq!(templates.list("ho").await.unwrap().len(), 1);
    assert!(templates.list("other").await.unwrap().is_empty());
    assert_eq!(templates.remove(&host).await.unwrap_err().kind(), ErrorKind::Conflict);
    let other = TemplateId::new("other").unwrap();
    assert!(templates.get(&other).await.unwrap().is_none());
    assert!(!templates.remove(&other).await.unwrap());
}
