"""A Flask application; its pipeline has a name in the decorator and nowhere else."""

import ragmon
from flask import Flask, jsonify, request
from handbook import complete, search

app = Flask(__name__)
ragmon.install()


@app.post("/api/ask")
@ragmon.trace(name="helpdesk")
def ask():
    question = request.get_json()["question"]
    docs = search(question)
    context = "\n\n".join(f"[{number}] {doc['text']}" for number, doc in enumerate(docs, 1))
    return jsonify(answer=complete(f"{context}\n\nQuestion: {question}"), documents=docs)
