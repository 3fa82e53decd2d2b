-- `saved` counts half steps: 2 * STEP for rows written after the snapshot of STEP, 2 * STEP - 1 for rows written while a resumed run
-- completes STEP and replaces that snapshot by one with the results of the completion (a validation, the last hooks).
UPDATE event SET saved = 2 * saved;
UPDATE artifact SET saved = 2 * saved;
