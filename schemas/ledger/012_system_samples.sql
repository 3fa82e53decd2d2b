-- Readings of the machine while a run trains, every few seconds: CPU, memory, disk, network, GPUs. 25 to 30 bytes per value. Only the
-- node of rank 0 is read. A resumed run keeps the readings of its earlier attempts, because they are about the time, not about a step.
CREATE TABLE system_sample (
  run INTEGER NOT NULL,
  key INTEGER NOT NULL,  -- of the table key
  time REAL NOT NULL,
  value REAL NOT NULL,
  PRIMARY KEY (run, key, time)
) STRICT, WITHOUT ROWID;

CREATE VIEW system_samples AS
  SELECT run.id AS run, key.name, system_sample.time, system_sample.value
  FROM system_sample JOIN run ON run.run = system_sample.run JOIN key ON key.key = system_sample.key;
