-- What users change in a run after it was recorded, and views that queries of users can rely on.
ALTER TABLE run ADD COLUMN grp TEXT NOT NULL DEFAULT '';  -- the group; empty: none
ALTER TABLE run ADD COLUMN archived REAL;                 -- when; NULL: not archived. Listings leave archived runs out.
ALTER TABLE run ADD COLUMN deleted REAL;                  -- when it was moved to the trash; NULL: it was not
ALTER TABLE run ADD COLUMN monitor TEXT NOT NULL DEFAULT 'val_loss';  -- checkpoint.monitor, if the config has one
UPDATE run SET monitor = ifnull((SELECT json_extract(content, '$.checkpoint.monitor') FROM config WHERE hash = run.config), monitor);

-- The audit trail of edits.
CREATE TABLE change (
  change INTEGER PRIMARY KEY,
  run INTEGER NOT NULL REFERENCES run,
  time REAL NOT NULL,
  who TEXT NOT NULL,   -- user@host
  what TEXT NOT NULL,  -- name, tags, notes, group, archived, ...
  before TEXT,         -- as in the run's row; NULL: unset
  after TEXT
) STRICT;
CREATE INDEX change_by_run ON change (run);

-- The recipe keys that runs of this ledger have. Added when a run begins, so that filters need not read all configs.
CREATE TABLE config_key (
  name TEXT PRIMARY KEY,     -- optimizer.lr
  path TEXT NOT NULL,        -- of json_extract: $.optimizer.lr
  numeric INTEGER NOT NULL   -- 1: a run has a number there
) STRICT, WITHOUT ROWID;
INSERT INTO config_key (name, path, numeric)
  SELECT replace(substr(fullkey, 3), '"', ''), fullkey, max(tree.type IN ('integer', 'real'))
  FROM (SELECT DISTINCT config AS hash FROM run) JOIN config USING (hash), json_tree(config.content) AS tree
  WHERE tree.type NOT IN ('object', 'null') AND instr(fullkey, '[') = 0
  GROUP BY 1;

-- Metrics whose largest value is the best one, as patterns of LIKE; of all others it is the smallest.
CREATE TABLE higher_is_better (pattern TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;
INSERT INTO higher_is_better VALUES ('%accuracy%'), ('acc'), ('%/acc'), ('%!_acc'), ('%f1'), ('%auc'), ('%r2'), ('%precision'),
  ('%recall'), ('%bleu%'), ('%rouge%'), ('%reward%'), ('%!_per!_s');
ALTER TABLE key ADD COLUMN higher_is_better INTEGER NOT NULL DEFAULT 0;
CREATE TRIGGER key_direction AFTER INSERT ON key BEGIN
  UPDATE key SET higher_is_better = EXISTS (SELECT 1 FROM higher_is_better WHERE name LIKE pattern ESCAPE '!') WHERE key = NEW.key;
END;
UPDATE key SET higher_is_better = EXISTS (SELECT 1 FROM higher_is_better WHERE name LIKE pattern ESCAPE '!');

-- Views for queries: README.md describes them. Columns keep their names and meanings; later migrations add only at the end.
-- DuckDB executes views itself where it can, with the types of the tables. It cannot where a view uses iif(), and then all columns
-- are texts. It takes `run` for a column where a table has one, so the table has another name there.
CREATE VIEW runs AS
  SELECT this.id, this.name, this.grp AS group_name,
    CASE WHEN this.status = 'preempted' AND trial.status = 'pruned' THEN 'pruned' ELSE this.status END AS status,
    this.strategy, this.world_size, this.steps, this.started, this.ended,
    (SELECT sum(coalesce(attempt.ended, this.ended, attempt.heartbeat) - attempt.started) FROM attempt
     WHERE attempt.run = this.run) AS seconds,
    loss.value AS final_loss,
    CASE WHEN best.run IS NULL THEN 'loss' ELSE this.monitor END AS metric,
    CASE WHEN best.run IS NULL THEN loss.value ELSE best.value END AS metric_value,
    CASE WHEN best.run IS NULL THEN loss.min WHEN best_key.higher_is_better = 1 THEN best.max ELSE best.min END AS best_value,
    this.exit_code, this.annotations ->> '$.measured.failure.kind' AS failure, this.message, this.tags, this.notes,
    sweep.id AS sweep, trial.number AS trial,
    (SELECT min(parent.id) FROM edge JOIN run AS parent ON parent.run = edge.source WHERE edge.target = this.run) AS parent,
    this.host ->> '$.hostname' AS host,
    this.git ->> '$.commit' AS git_commit,
    this.git ->> '$.branch' AS git_branch,
    CAST(this.git ->> '$.dirty' AS BOOLEAN) AS git_dirty,
    this.build_id, this.working_directory, this.folder,
    this.archived IS NOT NULL AS archived, this.deleted IS NOT NULL AS deleted
  FROM run AS this
    LEFT JOIN trial ON trial.run = this.run
    LEFT JOIN sweep ON sweep.sweep = trial.sweep
    LEFT JOIN key AS loss_key ON loss_key.name = 'loss'
    LEFT JOIN metric_last AS loss ON loss.run = this.run AND loss.key = loss_key.key
    LEFT JOIN key AS best_key ON best_key.name = this.monitor
    LEFT JOIN metric_last AS best ON best.run = this.run AND best.key = best_key.key;

-- metric_last has the metrics of each run, and CROSS JOIN makes SQLite read it first: a query for one metric of all runs
-- searches its points, and does not scan all points.
CREATE VIEW metrics AS
  SELECT run.id AS run, key.name, metric.step, metric.value
  FROM metric_last AS last JOIN run ON run.run = last.run JOIN key ON key.key = last.key CROSS JOIN metric
  WHERE metric.run = last.run AND metric.key = last.key;

CREATE VIEW last_metrics AS
  SELECT run.id AS run, key.name, last.step, last.value, last.min, last.max,
    CASE WHEN key.higher_is_better = 1 THEN last.max ELSE last.min END AS best
  FROM metric_last AS last JOIN run ON run.run = last.run JOIN key ON key.key = last.key;

CREATE VIEW params AS
  SELECT run.id AS run, replace(substr(tree.fullkey, 3), '"', '') AS name,
    iif(tree.type IN ('true', 'false'), tree.type, tree.value) AS value, tree.type
  FROM run JOIN config ON config.hash = run.config, json_tree(config.content) AS tree
  WHERE tree.type NOT IN ('object', 'null') AND instr(tree.fullkey, '[') = 0;

CREATE VIEW events AS
  SELECT run.id AS run, event.time, event.kind, CAST(event.fields ->> '$.step' AS BIGINT) AS step,
    event.fields ->> '$.message' AS message, event.fields
  FROM event JOIN run ON run.run = event.run;

CREATE VIEW artifacts AS
  SELECT run.id AS run, artifact.time, artifact.kind, artifact.path, CAST(artifact.fields ->> '$.step' AS BIGINT) AS step,
    CAST(artifact.fields ->> '$.bytes' AS BIGINT) AS bytes, artifact.fields
  FROM artifact JOIN run ON run.run = artifact.run;

CREATE VIEW attempts AS
  SELECT run.id AS run, attempt.number, attempt.reason, attempt.from_step, attempt.host, attempt.pid, attempt.started,
    attempt.heartbeat, attempt.ended, attempt.strategy, attempt.world_size, attempt.build_id
  FROM attempt JOIN run ON run.run = attempt.run;

CREATE VIEW edges AS
  SELECT source.id AS source, target.id AS target, edge.kind
  FROM edge JOIN run AS source ON source.run = edge.source JOIN run AS target ON target.run = edge.target;

CREATE VIEW sweeps AS
  SELECT id, name, status, seed, started, ended, seconds, message, host, folder FROM sweep;

CREATE VIEW trials AS
  SELECT sweep.id AS sweep, trial.number, run.id AS run, trial.status, trial.parameters, trial.objective, trial.step,
    trial.reason, trial.message, trial.slot, trial.tries, trial.started, trial.ended
  FROM trial JOIN sweep ON sweep.sweep = trial.sweep LEFT JOIN run ON run.run = trial.run;

CREATE VIEW changes AS
  SELECT run.id AS run, change.time, change.who, change.what, change.before, change.after
  FROM change JOIN run ON run.run = change.run;
