"""A process that tries to claim attempt 1 of a job when it is told to: DATABASE_URL JOB HOST OWNER."""

import sys

from store.attempts import claim
from store.database import Database

url, job_id, host, owner = sys.argv[1:]
database = Database(url)
with database.reading():
    print("ready", flush=True)
sys.stdin.readline()
with database.transaction() as session:
    won = claim(session, job_id, 1, host, owner, ttl_s=60.0) is not None
print("won" if won else "lost", flush=True)
