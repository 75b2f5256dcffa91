-- Written since schema 0014: single sign-on.
INSERT INTO people_logins (issuer, subject, person_id, created_at) VALUES
    ('https://login.example.com', '00u1ABC', 'user_bjorn', 1795617955818);
