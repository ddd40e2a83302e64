use sandbar_core::{
    Command, EgressPolicy, EnvVars, ErrorKind, GuestPath, HostMount, Isolation, Labels, MainCommand,
    MountAccess, ProjectId, Resources, TemplateId, VolumeName,
};
use serde_json::{Value, json};

use super::*;

fn request(options: CreateOptions) -> Value {
    let plan = Plan::of(&E2bConfig::new(), options).unwrap();
    serde_json::to_value(plan.request("k")).unwrap()
}

fn refusal(options: CreateOptions) -> Error {
    let error = Plan::of(&E2bConfig::new(), options).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.feature().is_some());
    error
}

#[test]
fn a_creation_that_asks_for_nothing_is_closed_and_lives_an_hour() {
    assert_eq!(
        request(CreateOptions::new()),
        json!({
            "templateID": "base", "timeout": 3600, "autoPause": false, "envVars": {},
            "network": {"denyOut": ["0.0.0.0/0"]},
            "metadata": {
                "sandbarVersion": "1", "sandbarLifetime": "3600", "sandbarOnDeadline": "destroy", "sandbarCreation": "k",
            },
        })
    );
}

#[test]
fn what_is_asked_for_is_in_the_request() {
    let options = CreateOptions::new()
        .with_template(TemplateId::new("team/mine:v2").unwrap())
        .with_project(ProjectId::new("p").unwrap())
        .with_labels(Labels::new().with("projectId", "spoofed").unwrap().with("a", "b").unwrap())
        .with_env(EnvVars::new().with("K", "v").unwrap())
        .with_deadline(Duration::from_millis(1500))
        .with_on_deadline(DeadlineAction::Pause)
        .with_egress(EgressPolicy::allow(["example.test"]).unwrap());
    let made = request(options);
    assert_eq!((&made["templateID"], &made["timeout"]), (&json!("team/mine:v2"), &json!(2)));
    assert_eq!((&made["autoPause"], &made["autoPauseMemory"]), (&json!(true), &json!(true)));
    assert_eq!(made["envVars"], json!({"K": "v"}));
    assert_eq!(made["network"], json!({"allowOut": ["example.test"], "denyOut": ["0.0.0.0/0"]}));
    assert_eq!((&made["metadata"]["projectId"], &made["metadata"]["a"]), (&json!("p"), &json!("b")));
}

#[test]
fn volumes_have_their_path_and_are_left_out_where_there_are_none() {
    let mount = sandbar_core::VolumeMount {
        volume: VolumeName::new("v").unwrap(),
        path: GuestPath::new("/data").unwrap(),
    };
    let made = request(CreateOptions::new().with_volume(mount));
    assert_eq!(made["volumeMounts"], json!([{"name": "v", "path": "/data"}]));
    assert_eq!(made["metadata"]["sandbarVolumes"], json!("true"));
    assert!(request(CreateOptions::new()).get("volumeMounts").is_none());
}

#[test]
fn environment_that_the_caller_delivers_goes_nowhere() {
    let env = EnvVars::new().with("K", "s3cret").unwrap();
    assert!(!request(CreateOptions::new().with_self_delivered_env(env)).to_string().contains("s3cret"));
}

#[test]
fn an_owned_one_is_given_a_lease() {
    let day = Duration::from_secs(86_400);
    let options = CreateOptions::new().with_lifetime(Lifetime::Owned).with_deadline(day);
    assert_eq!(request(options.clone())["timeout"], json!(LEASE.as_secs()));
    refusal(options.with_on_deadline(DeadlineAction::Pause));
}

#[test]
fn what_e2b_does_not_have_is_refused() {
    let mount = HostMount {
        source: "/tmp".into(),
        target: GuestPath::new("/mnt").unwrap(),
        access: MountAccess::ReadOnly,
    };
    let image = CreateOptions { base: Base::Image("x".into()), ..CreateOptions::new() };
    for options in [
        image,
        CreateOptions::new().with_main(MainCommand::new(Command::new("true"))),
        CreateOptions::new().with_ports([80]),
        CreateOptions::new().with_host_mount(mount),
        CreateOptions::new().with_resources(Resources::default().with_pids(9)),
        CreateOptions::new().with_limit_demand(LimitDemand::Enforced),
        CreateOptions::new().with_egress(EgressPolicy::allow(["example.test:22"]).unwrap()),
    ] {
        refusal(options);
    }
    assert!(Plan::of(&E2bConfig::new(), CreateOptions::new().with_min_isolation(Isolation::MicroVm)).is_ok());
    let own = E2bConfig::new().with_api_url("http://localhost:1");
    assert!(Plan::of(&own, CreateOptions::new().with_min_isolation(Isolation::Namespaces)).is_err());
}
