-- The best value of a metric is a finite one, as in filters: its points are read if its smallest or largest value is infinite. For finite
-- numbers only, x - x is 0. Columns keep their names and places.
DROP VIEW IF EXISTS last_metrics;
CREATE VIEW last_metrics AS
  SELECT run.id AS run, key.name, last.step, last.value, last.min, last.max,
    CASE
      WHEN key.higher_is_better = 1 THEN CASE WHEN last.max IS NULL OR last.max - last.max = 0 THEN last.max ELSE
        (SELECT max(metric.value) FROM metric
         WHERE metric.run = last.run AND metric.key = last.key AND metric.value - metric.value = 0) END
      ELSE CASE WHEN last.min IS NULL OR last.min - last.min = 0 THEN last.min ELSE
        (SELECT min(metric.value) FROM metric
         WHERE metric.run = last.run AND metric.key = last.key AND metric.value - metric.value = 0) END
    END AS best
  FROM metric_last AS last JOIN run ON run.run = last.run JOIN key ON key.key = last.key;

-- `seconds` is what `took` is in filters, the time of all attempts together, but of an attempt that has not ended it counts until its last
-- activity, so that a view reads no clock. (The metric called seconds is the time of the training alone.)
DROP VIEW IF EXISTS runs;  -- a stranger's bundle may lack it
CREATE VIEW runs AS
  SELECT this.id, this.name, this.grp AS group_name,
    CASE WHEN this.status = 'preempted' AND trial.status = 'pruned' THEN 'pruned' ELSE this.status END AS status,
    this.strategy, this.world_size, this.steps, this.started, this.ended,
    (SELECT sum(max(0, coalesce(attempt.ended, this.ended, attempt.heartbeat) - attempt.started)) FROM attempt
     WHERE attempt.run = this.run AND this.started > 0) AS seconds,
    loss.value AS final_loss,
    CASE WHEN best.run IS NULL THEN 'loss' ELSE this.monitor END AS metric,
    CASE WHEN best.run IS NULL THEN loss.value ELSE best.value END AS metric_value,
    (SELECT last_metrics.best FROM last_metrics WHERE last_metrics.run = this.id AND
     last_metrics.name = CASE WHEN best.run IS NULL THEN 'loss' ELSE this.monitor END) AS best_value,
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
