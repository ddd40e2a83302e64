use std::path::PathBuf;

use clap::Args;

use crate::value::{AllowRange, AllowRule, DenyRange, InjectArg};

/// What a sandbox may reach: the same for a new one, for one that runs, and for a check.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Network options")]
pub(crate) struct PolicyArgs {
    /// A host that may be reached, at ports 80 and 443 unless given; `*.HOST` for all names below it; may be given again
    ///
    /// PORTS are such as `443`, `80,443`, `8000-8100` or `any`; TCP, unless `/udp`. Names are looked up outside, at each connection, and never lead to a private
    /// address; at 443 TLS and at 80 HTTP have to name the same host, and at other ports nothing is read. A CIDR will do, too. Of a new sandbox without any of these
    /// options the backend's default counts; `local`: nothing can be reached.
    #[arg(long, value_name = "HOST[:PORTS][/udp]")]
    pub(crate) allow: Vec<AllowRule>,
    /// Addresses that may be reached, as `--allow` says of ports; may be given again
    ///
    /// Private addresses can be reached only by this, and only where the whole range is private, as `10.1.0.0/16:5432`. This machine's own, loopback, link-local and metadata
    /// addresses can't be reached at all. An address of version 6 stands in brackets before ports.
    #[arg(long, value_name = "CIDR[:PORTS][/udp]")]
    pub(crate) allow_cidr: Vec<AllowRange>,
    /// Addresses that may not be reached, at any port unless given, out of what `--allow-all` allows; may be given again
    ///
    /// What a rule allows is allowed all the same: rules that allow go first. Without `--allow-all`, here or in the file, all else is denied anyway, and this is an error.
    #[arg(long, value_name = "CIDR[:PORTS]")]
    pub(crate) deny_cidr: Vec<DenyRange>,
    /// Every public address may be reached, by TCP; with `--allow` and `--allow-cidr` also what they say
    #[arg(long)]
    pub(crate) allow_all: bool,
    /// Nothing may be reached
    #[arg(long, conflicts_with_all = ["allow", "allow_cidr", "deny_cidr", "allow_all", "egress_policy", "inject"])]
    pub(crate) deny_all: bool,
    /// A policy in JSON, as `sandbar network ID --json` has it under `policy`; the other options add to it
    ///
    /// Such as `{"rules": {"allow": [{"to": {"name": "*.example.com"}, "ports": "443"}], "otherwise": "deny"}}`. Up to 20000 rules. Values of headers do not stand in it:
    /// `--inject` has them.
    #[arg(long, value_name = "FILE", conflicts_with = "allow_all")]
    pub(crate) egress_policy: Option<PathBuf>,
    /// Put a header, whose value the sandbox never sees, into each HTTPS request to HOST, which may then be reached at 443; may be given again
    ///
    /// SOURCE is `env:NAME`, a variable of this command's environment, or `@FILE`; the value itself can't stand in an argument, where every process of this machine could read it. For this
    /// the TLS of HOST is intercepted: it ends outside of the sandbox, where requests are read in clear, and a certificate authority of this sandbox alone, which the sandbox is made to trust, stands
    /// in for HOST. Programs that bring their own list of authorities have to be told. The header of that name that the sandbox sends itself is dropped. Nothing is put into plain HTTP.
    #[arg(long, value_name = "HOST=HEADER:SOURCE")]
    pub(crate) inject: Vec<InjectArg>,
}
