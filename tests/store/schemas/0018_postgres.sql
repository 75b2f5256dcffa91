-- The next number follows the highest one of 0018.sql.
SELECT setval('lease_numbers', 8);
