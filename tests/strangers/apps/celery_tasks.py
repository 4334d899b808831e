"""A Celery task that answers questions from a queue."""

import ragmon
from celery import Celery
from handbook import complete, search

app = Celery("celery_tasks", broker="filesystem://")
app.conf.broker_transport_options = {
    "data_folder_in": "queue",
    "data_folder_out": "queue",
    "control_folder": "control",
}
app.conf.worker_hijack_root_logger = False
ragmon.install()


@app.task
@ragmon.trace
def answer_ticket(ticket_id, question):
    docs = search(question)
    text = complete("\n".join(doc["text"] for doc in docs) + "\n" + question)
    cited = [doc["id"] for doc in docs if doc["text"] == text]
    return {"ticket": ticket_id, "answer": text, "documents": docs, "citations": cited}
