-- Measurements of `runner doctor --calibrate`. The newest row for a machine, ranks and threads is used.
CREATE TABLE calibration (
  calibration INTEGER PRIMARY KEY,
  time REAL NOT NULL,
  machine TEXT NOT NULL,  -- host name, CPU, cores
  ranks INTEGER NOT NULL,
  threads INTEGER NOT NULL,
  build_id TEXT NOT NULL,
  points TEXT NOT NULL    -- JSON array of measurements
) STRICT;
CREATE INDEX calibration_by_machine ON calibration (machine, ranks, threads, time);
