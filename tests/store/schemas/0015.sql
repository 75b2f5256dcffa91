-- Written since schema 0015: numbers of imported keys.
UPDATE migrations SET came = 1
    WHERE id = 'mig_ynza7aETL4QphzipUv5eat';
