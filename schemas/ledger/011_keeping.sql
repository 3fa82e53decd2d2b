-- Runs that were deleted for good, so that a listing can say what became of an id.
CREATE TABLE purged (
  id TEXT PRIMARY KEY,     -- as in run
  name TEXT NOT NULL,
  started REAL NOT NULL,
  time REAL NOT NULL,
  who TEXT NOT NULL        -- user@host
) STRICT;

-- Where runs came from that this ledger has not recorded itself. The newest row of a run counts.
CREATE TABLE imported (
  imported INTEGER PRIMARY KEY,
  run INTEGER NOT NULL REFERENCES run,
  time REAL NOT NULL,
  kind TEXT NOT NULL,      -- bundle, mlflow, wandb, tensorboard, csv
  source TEXT NOT NULL,    -- the file
  origin TEXT NOT NULL,    -- the run's id there
  digest TEXT NOT NULL     -- of the rows as they were imported
) STRICT;
CREATE INDEX imported_by_run ON imported (run);
CREATE INDEX imported_by_origin ON imported (kind, origin);
