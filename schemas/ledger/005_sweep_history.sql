-- The process that runs a sweep, the state of its trials, and the complete input of its method, from which it is rebuilt.
-- sweep.space contains JSON: the sweep file and its path. sweep.recipe contains the recipe of the trials.
ALTER TABLE sweep ADD COLUMN folder TEXT;           -- relative to the ledger's folder
ALTER TABLE sweep ADD COLUMN message TEXT;          -- why it ended
ALTER TABLE sweep ADD COLUMN seconds REAL NOT NULL DEFAULT 0;  -- running time of all attempts
ALTER TABLE sweep ADD COLUMN host TEXT;             -- the process that runs it, as in attempt
ALTER TABLE sweep ADD COLUMN boot_id TEXT;
ALTER TABLE sweep ADD COLUMN pid_namespace TEXT;
ALTER TABLE sweep ADD COLUMN pid INTEGER;
ALTER TABLE sweep ADD COLUMN process_start INTEGER;
ALTER TABLE sweep ADD COLUMN heartbeat REAL;

-- trial.draw is equal to trial.number. Status `waiting`: proposed, but not running.
ALTER TABLE trial ADD COLUMN step INTEGER;          -- at which the objective was measured
ALTER TABLE trial ADD COLUMN reason TEXT;           -- class of a failure
ALTER TABLE trial ADD COLUMN message TEXT;
ALTER TABLE trial ADD COLUMN slot TEXT;             -- device slot of the last start
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
