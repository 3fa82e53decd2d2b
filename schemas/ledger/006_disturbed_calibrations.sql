-- Why a calibration has no points: other work disturbed it. NULL: it has some, as all had before this was kept.
ALTER TABLE calibration ADD COLUMN disturbed TEXT;
