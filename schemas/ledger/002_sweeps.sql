-- Sweeps and their trials. A trial's parameters are a pure function of (sweep.seed, trial.draw).
CREATE TABLE sweep (
  sweep INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  name TEXT NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('running', 'finished', 'failed', 'interrupted')),
  seed INTEGER NOT NULL,
  started REAL NOT NULL,
  ended REAL,
  space TEXT NOT NULL REFERENCES config,  -- JSON: sampler, parameters, objective
  recipe TEXT NOT NULL REFERENCES config
) STRICT;

CREATE TABLE trial (
  sweep INTEGER NOT NULL REFERENCES sweep,
  number INTEGER NOT NULL,
  draw INTEGER NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('waiting', 'running', 'finished', 'pruned', 'failed')),
  parameters TEXT NOT NULL,  -- JSON object: dotted key -> value
  objective REAL,
  run INTEGER REFERENCES run,
  PRIMARY KEY (sweep, number)
) STRICT, WITHOUT ROWID;
CREATE INDEX trial_by_run ON trial (run);
