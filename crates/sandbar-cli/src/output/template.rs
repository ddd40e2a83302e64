use jiff::Timestamp;
use sandbar::local::TemplateDetails;
use sandbar::{IdMapping, Template};
use serde_json::{Value, json};

use crate::output::columns;
use crate::output::record::key_line;
use crate::output::stats::short_size;
use crate::output::time::{distance, rfc3339};

/// The form of decision 0004.
pub(crate) fn templates_json(templates: &[Template]) -> Value {
    json!({"version": 1, "templates": templates.iter().map(one).collect::<Vec<_>>()})
}

/// One template, with the version of the form.
pub(crate) fn template_json(template: &Template) -> Value {
    let mut value = one(template);
    value["version"] = 1.into();
    value
}

fn one(template: &Template) -> Value {
    let Template { id, reference, created_at, size_bytes, label, in_use } = template;
    json!({
        "id": id,
        "reference": reference,
        "created_at": created_at.map(rfc3339),
        "size_bytes": size_bytes,
        "label": label,
        "in_use": in_use,
    })
}

/// Templates as a table for a person.
pub(crate) fn template_table(templates: &[Template], now: Timestamp) -> String {
    let rows = templates.iter().map(|template| {
        [
            template.id.to_string(),
            template.size_bytes.map_or_else(|| "-".to_owned(), short_size),
            template.created_at.map_or_else(|| "-".to_owned(), |at| format!("{} ago", distance(at, now))),
            if template.in_use { "yes" } else { "no" }.to_owned(),
            template.label.clone().unwrap_or_default(),
        ]
    });
    columns(["ID", "SIZE", "CREATED", "IN USE", "LABEL"], &rows.collect::<Vec<_>>())
}

/// A template as lines for a person.
pub(crate) fn template_text(template: &Template, now: Timestamp) -> String {
    let mut text = key_line("id", template.id.as_str());
    text += &key_line("reference", &template.reference);
    text += &key_line("size", &template.size_bytes.map_or_else(|| "unknown".to_owned(), short_size));
    if let Some(at) = template.created_at {
        text += &key_line("created", &format!("{} ({} ago)", rfc3339(at), distance(at, now)));
    }
    if let Some(label) = &template.label {
        text += &key_line("label", label);
    }
    text += &key_line("in use", if template.in_use { "yes" } else { "no" });
    text
}

/// As [`template_json`], with what it is made of and what it has for its sandboxes.
pub(crate) fn details_json(details: &TemplateDetails) -> Value {
    let TemplateDetails {
        template,
        source,
        over_host,
        layers,
        ids,
        env,
        workdir,
        user,
        start,
        ready,
        used_by,
    } = details;
    let mut value = template_json(template);
    value["source"] = json!(source);
    value["over_host"] = json!(over_host);
    value["layers"] =
        layers.iter().map(|layer| json!({"id": layer.id, "size_bytes": layer.size_bytes})).collect();
    value["ids"] = json!(ids);
    value["env"] = json!(env);
    value["workdir"] = json!(workdir);
    value["user"] = json!(user);
    value["start"] = command_json(start);
    value["ready"] = command_json(ready);
    value["used_by"] = json!(used_by);
    value
}

fn command_json(words: &[String]) -> Value {
    if words.is_empty() { Value::Null } else { json!(words) }
}

/// As [`template_text`], with what it is made of and what it has for its sandboxes.
pub(crate) fn details_text(details: &TemplateDetails, now: Timestamp) -> String {
    let TemplateDetails {
        template,
        source,
        over_host,
        layers,
        ids,
        env,
        workdir,
        user,
        start,
        ready,
        used_by,
    } = details;
    let mut text = template_text(template, now);
    if let Some(source) = source {
        text += &key_line("source", source);
    }
    if *over_host {
        text += &key_line("over", "this machine's own programs");
    }
    for layer in layers {
        let size = layer.size_bytes.map_or_else(|| "of unknown size".to_owned(), short_size);
        text += &key_line("layer", &format!("{}, {size}", layer.id));
    }
    if let Some(ids) = ids {
        text += &key_line("ids", mapping(*ids));
    }
    for (name, value) in env {
        text += &key_line("env", &format!("{name}={value}"));
    }
    if let Some(workdir) = workdir {
        text += &key_line("workdir", workdir);
    }
    if let Some(user) = user {
        text += &key_line("user", user.as_str());
    }
    for (key, words) in [("start", start), ("ready", ready)] {
        if !words.is_empty() {
            text += &key_line(key, &command(words));
        }
    }
    match used_by {
        Some(users) => {
            for user in users {
                text += &key_line("used by", user.as_str());
            }
        }
        None => text += &key_line("used by", "not known: a record can't be read"),
    }
    text
}

fn mapping(ids: IdMapping) -> &'static str {
    match ids {
        IdMapping::Range => "range",
        IdMapping::Subordinate => "subordinate",
        IdMapping::Single => "single",
    }
}

/// A command as a build file has it.
fn command(words: &[String]) -> String {
    match words {
        [shell, option, script] if shell == "/bin/sh" && option == "-c" => script.clone(),
        words => json!(words).to_string(),
    }
}
