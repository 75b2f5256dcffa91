-- Written since schema 0007: replies to idempotency keys.
INSERT INTO kept_replies (root_key_id, name, request, sealed, at) VALUES
    ('key_6DoiYYKn9m7sj5oa98prcz', 'WULZT1JIguDym/Ch5abcyVLuocDCHdNYij/H25cW2ww=', 'Y2Ga2mWs4yNwG17iMVV1BlNim++4qaVEvkg7PJhJrHY=', 'GacskEdfmOIhdEKNLGEevSLWATlyk+O5LeOLsaNknsaYU+RPTe2LHkg5huLdI7orNP7uxXiaOvhCDDSckPM0UIZJ+U7gmePwZ2GKdW9CDrd3rdE=', 1795617955822);
