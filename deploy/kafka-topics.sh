#!/usr/bin/env bash
# Creates the three topics of stream.toml with what ragmon needs of them:
#
#   deploy/kafka-topics.sh BROKERS [PARTITIONS] [REPLICAS]
#
# PARTITIONS is the greatest number of workers that have something to do, 12 unless it is given; REPLICAS is how many
# brokers keep each message, 3 unless it is given. It calls Kafka's own kafka-topics.sh; KAFKA_TOPICS says where that is.
# Topics that are there stay as they are: ragmon does not work with fewer partitions for chunks than for spans, and a
# number that is changed later splits the traces that are open then.
set -euo pipefail

if [[ $# -lt 1 || $# -gt 3 || $1 == -* ]]; then
    echo "usage: $0 BROKERS [PARTITIONS] [REPLICAS], such as: $0 kafka:9092 12 3" >&2
    exit 2
fi
brokers=$1
partitions=${2:-12}
replicas=${3:-3}
for number in "$partitions" "$replicas"; do
    if [[ ! $number =~ ^[1-9][0-9]*$ ]]; then
        echo "$0: $number is no number of partitions or replicas: give a whole number from 1 on" >&2
        exit 2
    fi
done

# A message counts as written when two brokers have it. With fewer than three replicas one must do: else nothing could be
# written while a broker is away.
in_sync=$((replicas < 3 ? 1 : 2))
hour_ms=$((60 * 60 * 1000))

create() {
    local topic=$1
    shift
    local settings=()
    local setting
    for setting in "min.insync.replicas=$in_sync" cleanup.policy=delete "$@"; do
        settings+=(--config "$setting")
    done
    "${KAFKA_TOPICS:-kafka-topics.sh}" --bootstrap-server "$brokers" --create --if-not-exists --topic "$topic" \
        --partitions "$partitions" --replication-factor "$replicas" "${settings[@]}"
}

# LogAppendTime: time is the log's, the same for whoever reads it, and no producer's clock. A day is how long the workers
# may be away.
for topic in otlp_spans otlp_metrics; do
    create "$topic" message.timestamp.type=LogAppendTime "retention.ms=$((24 * hour_ms))"
done
# As many partitions as the spans have: what is counted of a partition goes into the one with the same number. A week is
# how far back a head without its disk begins again.
create ragmon.chunks message.timestamp.type=LogAppendTime "retention.ms=$((7 * 24 * hour_ms))" max.message.bytes=4194304
