-- Who runs a sweep, how its trials stand, and everything its method was told, from which the method is rebuilt.
-- sweep.space holds JSON: the sweep's file and its path; sweep.recipe the recipe that trials are made from.
ALTER TABLE sweep ADD COLUMN folder TEXT;           -- relative to the ledger's own folder
ALTER TABLE sweep ADD COLUMN message TEXT;          -- why it ended
ALTER TABLE sweep ADD COLUMN seconds REAL NOT NULL DEFAULT 0;  -- it has run, all attempts together
ALTER TABLE sweep ADD COLUMN host TEXT;             -- the process that runs it, as in attempt
ALTER TABLE sweep ADD COLUMN boot_id TEXT;
ALTER TABLE sweep ADD COLUMN pid_namespace TEXT;
ALTER TABLE sweep ADD COLUMN pid INTEGER;
ALTER TABLE sweep ADD COLUMN process_start INTEGER;
ALTER TABLE sweep ADD COLUMN heartbeat REAL;

-- A trial's draw is its number. Waiting: proposed, and not running (any more).
ALTER TABLE trial ADD COLUMN step INTEGER;          -- that the objective was measured at
ALTER TABLE trial ADD COLUMN reason TEXT;           -- of a failure: its class
ALTER TABLE trial ADD COLUMN message TEXT;
ALTER TABLE trial ADD COLUMN slot TEXT;             -- device slot it ran on last
ALTER TABLE trial ADD COLUMN tries INTEGER NOT NULL DEFAULT 0;  -- how often it was started
ALTER TABLE trial ADD COLUMN started REAL;
ALTER TABLE trial ADD COLUMN ended REAL;

CREATE TABLE sweep_history (
  sweep INTEGER NOT NULL,
  sequence INTEGER NOT NULL,  -- 1, 2, ...
  trial INTEGER NOT NULL,
  time REAL NOT NULL,
  entry TEXT NOT NULL,        -- JSON object: proposed, reported or ended
  PRIMARY KEY (sweep, sequence)
) STRICT, WITHOUT ROWID;
