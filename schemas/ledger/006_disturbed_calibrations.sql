-- Why a calibration has no points: other work disturbed it. NULL: it has points, like all rows that are older than this column.
ALTER TABLE calibration ADD COLUMN disturbed TEXT;
