-- Runs and their results. Times are Unix seconds. JSON is stored as text.
-- Migrations are append-only: the statements of a published file never change, and later files only add to the schema. An older
-- program that has the ledger open continues to work.

-- Texts that many runs share (recipes, resolved recipes, configs, origins, plans), addressed by their content.
CREATE TABLE config (
  hash TEXT PRIMARY KEY,  -- XXH3-128, 32 hexadecimal digits
  content TEXT NOT NULL
) STRICT;

CREATE TABLE run (
  run INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  name TEXT NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('running', 'finished', 'failed', 'interrupted', 'preempted', 'lost')),
  strategy TEXT NOT NULL,
  world_size INTEGER NOT NULL,
  started REAL NOT NULL,
  ended REAL,
  steps INTEGER NOT NULL DEFAULT 0,  -- the greatest step that was reported
  exit_code INTEGER,
  message TEXT,
  tags TEXT NOT NULL,                -- JSON array
  notes TEXT NOT NULL,
  folder TEXT NOT NULL,              -- relative to the ledger's folder if it is inside that folder
  working_directory TEXT NOT NULL,
  argv TEXT NOT NULL,                -- JSON array
  build_id TEXT NOT NULL,
  git TEXT NOT NULL,                 -- JSON
  host TEXT NOT NULL,                -- JSON
  recipe TEXT NOT NULL REFERENCES config,    -- as written by the user
  resolved TEXT NOT NULL REFERENCES config,  -- with a value for every `auto`
  config TEXT NOT NULL REFERENCES config,    -- JSON
  origins TEXT NOT NULL REFERENCES config,   -- JSON
  plan TEXT NOT NULL REFERENCES config,      -- JSON
  annotations TEXT NOT NULL DEFAULT '{}'     -- JSON object: predicted, measured, ...
) STRICT;
CREATE INDEX run_by_name ON run (name);
CREATE INDEX run_running ON run (run) WHERE status = 'running';

-- One start of a run's processes. The newest attempt of a running run is its lease: the process named here owns the run.
CREATE TABLE attempt (
  attempt INTEGER PRIMARY KEY,
  run INTEGER NOT NULL REFERENCES run,
  number INTEGER NOT NULL,  -- 1, 2, ...
  reason TEXT,              -- NULL: claimed, not started yet
  from_step INTEGER NOT NULL DEFAULT 0,
  host TEXT NOT NULL,
  boot_id TEXT NOT NULL,
  pid_namespace TEXT NOT NULL,
  pid INTEGER NOT NULL,
  process_start INTEGER NOT NULL,  -- clock ticks since boot
  started REAL NOT NULL,
  heartbeat REAL NOT NULL,         -- last activity
  ended REAL,
  UNIQUE (run, number)
) STRICT;

CREATE TABLE key (
  key INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE
) STRICT;

-- 28.6 bytes per point. No REFERENCES: they would cost two lookups per point. NULL means NaN, which SQLite cannot store;
-- infinities are stored unchanged.
CREATE TABLE metric (
  run INTEGER NOT NULL,
  key INTEGER NOT NULL,
  step INTEGER NOT NULL,
  value REAL,
  PRIMARY KEY (run, key, step)
) STRICT, WITHOUT ROWID;

-- Updated in the transaction that writes the points, so that listings do not read points.
CREATE TABLE metric_last (
  run INTEGER NOT NULL,
  key INTEGER NOT NULL,
  step INTEGER NOT NULL,
  value REAL,
  min REAL,
  max REAL,
  PRIMARY KEY (run, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE event (
  event INTEGER PRIMARY KEY,
  run INTEGER NOT NULL REFERENCES run,
  time REAL NOT NULL,
  kind TEXT NOT NULL,
  fields TEXT NOT NULL  -- JSON object
) STRICT;
CREATE INDEX event_by_run ON event (run);

CREATE TABLE artifact (
  artifact INTEGER PRIMARY KEY,
  run INTEGER NOT NULL REFERENCES run,
  time REAL NOT NULL,
  kind TEXT NOT NULL,
  path TEXT NOT NULL,
  fields TEXT NOT NULL  -- JSON object
) STRICT;
CREATE INDEX artifact_by_run ON artifact (run);

-- Runs that started from other runs.
CREATE TABLE edge (
  source INTEGER NOT NULL REFERENCES run,
  target INTEGER NOT NULL REFERENCES run,
  kind TEXT NOT NULL,  -- resumed: target started from source's checkpoint
  PRIMARY KEY (target, source, kind)
) STRICT, WITHOUT ROWID;
