use sandbar_core::{Capabilities, ErrorKind, ProviderExt, SandboxExt};

use crate::bed::Bed;
use crate::case::group;
use crate::check::{Checked, ensure, ensure_eq, fail};

group!("capabilities";
    missing_provider_part_has_a_reason, missing_sandbox_part_has_a_reason, report_agrees_with_provider,
    report_agrees_with_sandbox, missing_provider_part_is_unsupported, missing_sandbox_part_is_unsupported,
    backend_has_a_name,
);

fn check_reasons(capabilities: &Capabilities) -> Checked {
    for entry in &capabilities.parts {
        let reason = entry.reason.as_deref().unwrap_or_default();
        ensure!(entry.available || !reason.is_empty(), "`{}` is missing without a reason", entry.part);
        ensure!(!entry.available || reason.is_empty(), "`{}` is there and has a reason why not", entry.part);
    }
    Ok(())
}

async fn missing_provider_part_has_a_reason(bed: &Bed<'_>) -> Checked {
    check_reasons(&Capabilities::of_provider(bed.provider()))
}

async fn missing_sandbox_part_has_a_reason(bed: &Bed<'_>) -> Checked {
    check_reasons(&Capabilities::of_sandbox(&*bed.shared().await?))
}

async fn report_agrees_with_provider(bed: &Bed<'_>) -> Checked {
    let provider = bed.provider();
    let report = Capabilities::of_provider(provider);
    for (part, there) in [
        ("templates", provider.templates().is_some()),
        ("builds", provider.builds().is_some()),
        ("volumes", provider.volumes().is_some()),
        ("egress", provider.egress().is_some()),
        ("capacity", provider.capacity().is_some()),
        ("usage", provider.usage().is_some()),
    ] {
        ensure_eq!(report.get(part).map(|entry| entry.available), Some(there), part);
    }
    Ok(())
}

async fn report_agrees_with_sandbox(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.shared().await?;
    let report = Capabilities::of_sandbox(&*sandbox);
    for (part, there) in [
        ("processes", sandbox.processes().is_some()),
        ("watching", sandbox.watching().is_some()),
        ("ports", sandbox.ports().is_some()),
        ("metrics", sandbox.metrics().is_some()),
        ("pausing", sandbox.pausing().is_some()),
        ("forking", sandbox.forking().is_some()),
        ("archive", sandbox.archive().is_some()),
        ("resources", sandbox.resources().is_some()),
        ("main_command", sandbox.main_command().is_some()),
        ("network", sandbox.network().is_some()),
        ("guest", sandbox.guest().is_some()),
    ] {
        ensure_eq!(report.get(part).map(|entry| entry.available), Some(there), part);
    }
    Ok(())
}

async fn missing_provider_part_is_unsupported(bed: &Bed<'_>) -> Checked {
    let provider = bed.provider();
    for (part, result) in [
        ("templates", provider.require_templates().err()),
        ("builds", provider.require_builds().err()),
        ("volumes", provider.require_volumes().err()),
        ("egress", provider.require_egress().err()),
        ("capacity", provider.require_capacity().err()),
        ("usage", provider.require_usage().err()),
    ] {
        if let Some(error) = result {
            ensure_eq!(error.kind(), ErrorKind::Unsupported, part);
            ensure_eq!(error.feature(), Some(part), "the feature named");
        }
    }
    Ok(())
}

async fn missing_sandbox_part_is_unsupported(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.shared().await?;
    for (part, result) in [
        ("processes", sandbox.require_processes().err()),
        ("watching", sandbox.require_watching().err()),
        ("ports", sandbox.require_ports().err()),
        ("metrics", sandbox.require_metrics().err()),
        ("pausing", sandbox.require_pausing().err()),
        ("forking", sandbox.require_forking().err()),
        ("archive", sandbox.require_archive().err()),
        ("resources", sandbox.require_resources().err()),
        ("main_command", sandbox.require_main_command().err()),
        ("network", sandbox.require_network().err()),
        ("guest", sandbox.require_guest().err()),
    ] {
        if let Some(error) = result {
            ensure_eq!(error.kind(), ErrorKind::Unsupported, part);
            ensure_eq!(error.feature(), Some(part), "the feature named");
        }
    }
    Ok(())
}

async fn backend_has_a_name(bed: &Bed<'_>) -> Checked {
    let name = bed.provider().name();
    if name.is_empty() || !name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') {
        return fail(format!("`{name}` is not a backend's name: expected lower-case letters"));
    }
    Ok(())
}
