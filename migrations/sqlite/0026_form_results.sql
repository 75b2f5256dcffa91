-- What the forms of the dashboard created, for a day: a form that is sent twice creates once, and a secret is shown once.

CREATE TABLE form_results (
    session_id TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    -- A hash of the path and the one-time token of the form.
    form TEXT NOT NULL,
    created_id TEXT NOT NULL,
    -- Only the browser of the session can open it. NULL: there is none, it was shown, or its time is over.
    sealed TEXT,
    shown_at BIGINT,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (session_id, form)
);
CREATE INDEX form_results_created_at ON form_results (created_at);
