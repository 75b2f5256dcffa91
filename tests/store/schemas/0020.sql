-- Written since schema 0020: search texts of migrations of keys.
UPDATE migrations SET search = 'mig_ynza7aetl4qphzipuv5eat
übernahme'
    WHERE id = 'mig_ynza7aETL4QphzipUv5eat';
