macro_rules! mutations {
    ($($(#[$doc:meta])* $name:ident => $case:literal,)*) => {
        /// One broken rule.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Mutation {
            $($(#[$doc])* $name,)*
        }

        impl Mutation {
            /// All of them.
            pub(crate) const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The case that has to catch it.
            pub(crate) fn caught_by(self) -> &'static str {
                match self {
                    $(Self::$name => $case,)*
                }
            }
        }
    };
}

mutations! {
    /// Every command ends with code 0.
    SwallowsNonZeroExit => "commands.non_zero_exit_is_data",
    /// A command that a signal ended ends with code 0.
    SwallowsSignals => "commands.signal_is_data",
    /// A command whose end is unknown ends with code 0.
    UnknownExitIsSuccess => "commands.unknown_end_is_a_failure",
    /// A command's environment is forgotten.
    DropsEnv => "surroundings.env_reaches_the_command",
    /// Output passes through a string.
    LossyBytes => "output.all_byte_values_arrive",
    /// Output is trimmed.
    TrimsOutput => "output.is_not_trimmed",
    /// Standard error is added to standard output.
    MergesStreams => "output.streams_are_kept_apart",
    /// Cut output is not told.
    HidesTruncation => "output.limit_says_truncated",
    /// Standard input is forgotten.
    DropsStdin => "output.stdin_arrives",
    /// Arguments are joined and given to a shell.
    ParsesArgumentsAgain => "commands.arguments_are_not_parsed_by_a_shell",
    /// The working folder is ignored.
    IgnoresFolder => "surroundings.folder_is_honoured",
    /// A timeout answers, and the command goes on.
    TimeoutWithoutKill => "surroundings.timeout_ends_the_tree",
    /// A timeout loses what was said so far.
    TimeoutLosesOutput => "surroundings.timeout_keeps_partial_output",
    /// A command wakes a sleeping sandbox.
    WakesOnCommand => "surroundings.sleeping_sandbox_is_a_conflict",
    /// A lookup that failed says that there is nothing.
    FailedLookupIsNone => "lookup.failed_get_is_an_error",
    /// What is absent is an error.
    AbsenceIsAnError => "lookup.describe_of_unknown_is_none",
    /// `get` wakes.
    WakesOnGet => "lookup.get_does_not_wake",
    /// `describe` pushes the deadline out.
    ExtendsOnDescribe => "lookup.describe_does_not_extend",
    /// A listing that broke off looks whole.
    HidesBrokenListing => "list.broken_listing_is_an_error",
    /// The last row of a listing is missing.
    ShortListing => "list.holds_all",
    /// Rows come twice.
    DuplicateRows => "list.holds_each_once",
    /// A listing ignores the project asked for.
    IgnoresProjectFilter => "list.filters_by_project",
    /// Self-delivered environment becomes labels.
    StoresSelfDeliveredEnv => "create.self_delivered_env_is_not_in_the_record",
    /// Self-delivered environment becomes environment.
    DeliversSelfDeliveredEnv => "create.self_delivered_env_is_not_in_the_sandbox",
    /// A label of the caller overrides the project.
    LabelsOverride => "create.labels_do_not_override_the_record",
    /// A missing template is replaced by the default.
    TemplateFallsBack => "create.missing_template_is_an_error",
    /// A create that fails leaves a sandbox.
    LeavesWreckage => "create.half_way_failure_leaves_nothing",
    /// The isolation asked for is ignored.
    IgnoresIsolation => "options.isolation_is_met_or_refused",
    /// The deadline asked for is ignored.
    IgnoresDeadline => "options.deadline_is_in_the_record",
    /// The main command is ignored.
    IgnoresMainCommand => "options.main_command_that_cannot_run_is_an_error",
    /// Destroying what is absent says that it was there.
    DestroyIsAlwaysTrue => "destroy.says_true_then_false",
    /// A destroy that failed says that there was nothing.
    FailedDestroyIsFalse => "destroy.failed_destroy_is_an_error",
    /// Extending can shorten.
    ExtendShortens => "deadline.extend_only_never_shortens",
    /// A terminal is replaced by pipes.
    PipesForTerminal => "processes.terminal_is_real_or_refused",
    /// A signal to nobody says that it arrived.
    SignalIsAlwaysTrue => "processes.signal_to_none_is_false",
    /// Only what was started is among all.
    ListAllIsList => "process_table.all_are_listed_whoever_started_them",
    /// A signal to one process goes to its tree.
    SignalsTreesAlways => "process_table.any_can_be_signalled_alone_or_with_its_tree",
    /// A signal to nobody at all says that it arrived.
    SignalAnyIsAlwaysTrue => "process_table.signal_any_to_none_is_false",
    /// A rename does not tell the new name.
    RenameTellsOneName => "watching.a_rename_within_tells_both_names",
    /// The exit comes before the output.
    ExitComesFirst => "processes.exit_is_the_last_event",
    /// A write whose body fails leaves half a file.
    KeepsHalfAFile => "files.failed_body_leaves_no_new_file",
    /// The range asked for is ignored.
    IgnoresRange => "files.range_is_cut",
    /// A stat that failed says that there is nothing.
    FailedStatIsNone => "tree.failed_stat_is_an_error",
    /// A missing folder is an empty one.
    MissingFolderIsEmpty => "tree.list_of_missing_is_not_found",
    /// Removing what is absent says that it was there.
    RemoveIsAlwaysTrue => "tree.remove_of_missing_is_false",
    /// Hibernating does nothing and says that it did.
    HibernateIsANoOp => "pausing.hibernate_makes_it_sleep",
    /// Hibernating says that the processes are gone.
    HibernateClaims => "pausing.outcome_is_what_happened",
    /// The end of a main command is a success.
    MainEndsWell => "main_command.end_is_data_and_the_sandbox_runs_on",
    /// A sandbox without a main command has one that ended.
    MainIsNeverAbsent => "main_command.absent_is_none",
    /// Following the logs does not wait.
    LogsDoNotFollow => "main_command.follow_ends_with_the_command",
    /// The logs pass through a string.
    LogsAreText => "main_command.logs_hold_all_bytes",
    /// All of the logs come, whatever part was asked for.
    LogsIgnoreTail => "main_command.tail_is_the_last_lines",
    /// What came before comes as well.
    LogsIgnoreSince => "main_command.since_leaves_out_what_came_before",
    /// A main command runs where it likes.
    MainIgnoresFolder => "main_command.folder_is_honoured",
    /// A main command is not started again.
    MainIsNotRestarted => "main_command.restarts_are_counted",
    /// A change of limits does nothing and says that it did.
    SetResourcesIsANoOp => "resources.change_is_in_the_record",
    /// A limit that was not named changes, too.
    SetsOtherLimits => "resources.only_what_is_given_changes",
    /// Enforcement that is demanded is not looked at.
    IgnoresDemand => "resources.demand_is_kept_or_refused",
    /// A sandbox that lives has ended.
    UsageOfTheLiving => "usage.living_sandbox_has_none",
    /// An end leaves no entry.
    UsageIsForgotten => "usage.destroyed_sandbox_has_one_entry",
    /// Another policy is taken, and nothing changes.
    SetPolicyIsANoOp => "network.set_replaces_the_policy",
    /// The record keeps the policy of the creation.
    RecordKeepsFirstPolicy => "network.set_is_in_the_record",
    /// A policy that is refused is in force all the same.
    RefusedPolicyIsInForce => "network.too_many_rules_change_nothing",
    /// A rule that can't be enforced is left out.
    DropsWhatItCanNotEnforce => "network.what_can_not_be_enforced_is_refused_by_its_rule",
    /// Values of injected headers are read back.
    ShowsInjectedValues => "network.value_of_a_header_is_not_read_back",
    /// A header without a value is dropped.
    DropsHeadersWithoutValue => "network.policy_without_its_values_is_refused",
    /// Every explanation says allowed.
    ExplainsAllAsAllowed => "network.explain_tells_allowed_from_denied",
    /// Explanations are of the policy of the creation.
    ExplainsTheFirstPolicy => "network.explain_follows_a_change",
    /// An explanation is counted as a denial.
    CountsExplanations => "network.explain_counts_nothing",
    /// A change of the policy is not told.
    HidesPolicyChanges => "network.change_is_in_the_decisions",
    /// All decisions come, whatever part was asked for.
    DecisionsIgnoreTail => "network.tail_and_since_leave_out_older_decisions",
    /// Following decisions does not wait.
    DecisionsDoNotFollow => "network.followed_decisions_come_and_end",
    /// A gone sandbox may reach nothing, instead of being gone.
    GoneSandboxDeniesAll => "network.gone_sandbox_is_not_found",
    /// A volume that could not be looked up does not exist.
    FailedVolumeLookupIsFalse => "volumes.failed_lookup_is_an_error",
    /// A volume that is there already is said to be new.
    VolumesAreAlwaysNew => "volumes.create_says_true_then_false",
    /// A volume that a sandbox holds is listed as free.
    HeldVolumesAreFree => "volumes.list_filters_by_attachment",
}
