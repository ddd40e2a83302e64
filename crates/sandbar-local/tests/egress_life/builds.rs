//! A build's commands reach what the build is allowed, and its sandboxes nothing of that.

use futures::StreamExt;
use sandbar_core::{
    BuildLog, BuildSpec, BuildStep, Command, CreateOptions, Error, ProviderExt, SandboxProvider, TemplateId,
};

use crate::support::{Scene, Tries, rules_of, scene};

async fn build(scene: &Scene, spec: BuildSpec) -> Result<(), Error> {
    let provider = scene.provider();
    let mut words = provider.require_builds().expect("builds").build(spec).await?;
    while let Some(word) = words.next().await {
        if let BuildLog::Done(_) = word? {
            return Ok(());
        }
    }
    panic!("the build ended without a last word");
}

#[test]
fn a_step_reaches_what_the_build_is_allowed_and_no_more() {
    scene("builds::a_step_reaches_what_the_build_is_allowed_and_no_more", async |scene| {
        let ((a, _), (b, _)) = (scene.rig.host("a"), scene.rig.host("b"));
        let id = TemplateId::new("fetched").expect("an id");
        let fetch = |host: &str| {
            let program = "print(get(sys.argv[1]), file=open('/home/user/' + sys.argv[2], 'w'))";
            let program = format!("{}\n{program}", crate::support::prelude());
            BuildStep::Run(Command::new("python3").args(["-c", &program, host, "page"]))
        };
        let spec = |host: &str| BuildSpec::new(id.clone(), vec![fetch(host)]);
        build(scene, spec(&a).with_egress(rules_of(&[&a]))).await.expect("built");
        let options = CreateOptions::new().with_template(id.clone());
        let sandbox = scene.provider().create(options).await.expect("a sandbox");
        let page = sandbox.python("show(open('/home/user/page').read().strip())", &[]).await;
        assert_eq!(page, "200");
        // What the build was allowed is no policy of what was built.
        assert_ne!(sandbox.get(&a, 80).await, "200");
        sandbox.destroy().await.expect("destroyed");
        build(scene, spec(&b).with_egress(rules_of(&[&a]))).await.expect("built");
        let options = CreateOptions::new().with_template(id.clone());
        let sandbox = scene.provider().create(options).await.expect("a sandbox");
        let page = sandbox.python("show(open('/home/user/page').read().strip())", &[]).await;
        assert_eq!(page, "no such name", "a name that no rule has");
        sandbox.destroy().await.expect("destroyed");
        assert!(scene.rig.queries(&b).is_empty());
        scene.provider().require_templates().expect("templates").remove(&id).await.expect("removed");
    });
}
