-- The points of `metric` that were recorded after a training's last step, and what they replaced. A run that continues has not
-- ended there: it deletes these points and restores the replaced ones.
CREATE TABLE end_point (
  run INTEGER NOT NULL,
  key INTEGER NOT NULL,
  step INTEGER NOT NULL,
  replaces INTEGER NOT NULL,  -- 1: there was a point before
  value REAL,                 -- of that point
  PRIMARY KEY (run, key, step)
) STRICT, WITHOUT ROWID;
