/// The tables.
pub(in crate::store) const MIGRATION: &str = "CREATE TABLE templates (
       id TEXT PRIMARY KEY,
       tenant TEXT NOT NULL,
       name TEXT,
       kind TEXT NOT NULL,
       created_at TEXT NOT NULL,
       updated_at TEXT NOT NULL,
       spawn_count INTEGER NOT NULL DEFAULT 0,
       last_spawned_at TEXT,
       UNIQUE (tenant, name)
     ) STRICT;
     CREATE TABLE builds (
       id TEXT PRIMARY KEY,
       template TEXT NOT NULL REFERENCES templates (id) ON DELETE CASCADE,
       status TEXT NOT NULL,
       provider TEXT NOT NULL,
       tags TEXT NOT NULL,
       sandbox TEXT,
       cpu_count INTEGER,
       memory_mb INTEGER,
       free_disk_mb INTEGER,
       user TEXT,
       workdir TEXT,
       size_bytes INTEGER,
       reason TEXT,
       reason_step TEXT,
       created_at TEXT NOT NULL,
       updated_at TEXT NOT NULL,
       finished_at TEXT
     ) STRICT;
     CREATE INDEX builds_of_template ON builds (template);
     CREATE TABLE template_tags (
       template TEXT NOT NULL REFERENCES templates (id) ON DELETE CASCADE,
       tag TEXT NOT NULL,
       build TEXT NOT NULL REFERENCES builds (id) ON DELETE CASCADE,
       created_at TEXT NOT NULL,
       PRIMARY KEY (template, tag)
     ) STRICT;
     CREATE INDEX tags_of_build ON template_tags (build);
     CREATE TABLE build_logs (
       build TEXT NOT NULL REFERENCES builds (id) ON DELETE CASCADE,
       number INTEGER NOT NULL,
       at TEXT NOT NULL,
       level TEXT NOT NULL,
       step TEXT,
       message TEXT NOT NULL,
       PRIMARY KEY (build, number)
     ) STRICT, WITHOUT ROWID;
     CREATE TABLE doomed_templates (provider TEXT PRIMARY KEY) STRICT;
     CREATE TABLE volumes (
       id TEXT PRIMARY KEY,
       tenant TEXT NOT NULL,
       name TEXT NOT NULL,
       created_at TEXT NOT NULL,
       UNIQUE (tenant, name)
     ) STRICT;";
