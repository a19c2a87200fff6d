/* Questions to a program, one process each, and its answers: one JSON line for each. */
#pragma once

#include "watch_start.h"
#include "watch_trace.h"

enum {
    MOST_ANSWER_BYTES = 1 << 20,
    MOST_QUESTION_BYTES = 1 << 24,
    MOST_ID_BYTES = 64,
};

static const char QUESTION_FILE[] = "question.txt";
static const char PLACEHOLDER[] = "{prompt}";

static struct {
    FILE *file; /* NULL where the program is started once */
    int64_t limit_ns, deadline_ns;
    char id[MOST_ID_BYTES];
    char *text;
    size_t length;
    bool is_damaged; /* its file */
} question;

static struct {
    char text[MOST_ANSWER_BYTES];
    size_t length;
    int64_t start_ns, first_ns, last_ns;
    const char *cut_by; /* NULL where the program ended by itself */
} answer;

/* Reads "ID LENGTH", an end of line, as many bytes and an end of line. */
static bool next_question(void)
{
    free(question.text);
    question.text = NULL;
    int found = fscanf(question.file, "%63s %zu", question.id, &question.length);
    if (found == EOF && feof(question.file))
        return false;
    question.is_damaged = found != 2 || fgetc(question.file) != '\n'
                          || question.length > MOST_QUESTION_BYTES
                          || (question.text = malloc(question.length + 1)) == NULL
                          || fread(question.text, 1, question.length, question.file) != question.length
                          || fgetc(question.file) != '\n';
    if (!question.is_damaged)
        question.text[question.length] = '\0';
    return !question.is_damaged;
}

/* It lies in the working folder, for programs that read it by its name, and is their standard input. */
static int put_question(void)
{
    int file = open(QUESTION_FILE, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (file < 0)
        return -1;
    for (size_t done = 0; done < question.length;) {
        ssize_t count = write(file, question.text + done, question.length - done);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0) {
            close(file);
            return -1;
        }
        done += (size_t)count;
    }
    lseek(file, 0, SEEK_SET);
    return file;
}

/* Returns the word with the question in it; NULL without memory. */
static char *with_question(const char *word)
{
    size_t places = 0;
    for (const char *at = word; (at = strstr(at, PLACEHOLDER)) != NULL; at += sizeof PLACEHOLDER - 1)
        places++;
    char *made = malloc(strlen(word) + places * question.length + 1), *end = made;
    if (made == NULL)
        return NULL;
    for (const char *at; (at = strstr(word, PLACEHOLDER)) != NULL; word = at + sizeof PLACEHOLDER - 1) {
        end = mempcpy(end, word, (size_t)(at - word));
        end = mempcpy(end, question.text, question.length);
    }
    strcpy(end, word);
    return made;
}

/* Returns the words for this question; NULL without memory. */
static char **asking_words(char *const *words)
{
    size_t count = 0;
    while (words[count] != NULL)
        count++;
    char **made = calloc(count + 1, sizeof *made);
    for (size_t i = 0; made != NULL && i < count; i++)
        if ((made[i] = with_question(words[i])) == NULL)
            return NULL;
    return made;
}

static void forget_words(char **words)
{
    for (size_t i = 0; words[i] != NULL; i++)
        free(words[i]);
    free(words);
}

static void end_answer(const char *why)
{
    if (answer.cut_by == NULL)
        answer.cut_by = why;
    kill(-program.id, SIGKILL);
}

static void keep_answer(int64_t now_ns, const char *data, size_t length)
{
    size_t room = sizeof answer.text - answer.length;
    if (answer.length == 0)
        answer.first_ns = now_ns;
    answer.last_ns = now_ns;
    memcpy(answer.text + answer.length, data, length < room ? length : room);
    answer.length += length < room ? length : room;
    if (length > room)
        end_answer("output");
}

static void check_deadline(int64_t now_ns)
{
    if (question.deadline_ns != 0 && now_ns >= question.deadline_ns)
        end_answer("time");
}

/* Bytes become characters of the same number, so that any output can be given back as it was. */
static void put_text(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        unsigned char byte = (unsigned char)text[i];
        if (byte < 0x20 || byte >= 0x7f)
            printf("\\u%04x", byte);
        else if (byte == '"' || byte == '\\')
            printf("\\%c", byte);
        else
            putchar(byte);
    }
}

/* The standard error's length tells what this program wrote there. Says whether it was written. */
static bool put_answer(int status)
{
    struct stat errors;
    bool is_file = fstat(STDERR_FILENO, &errors) == 0 && S_ISREG(errors.st_mode);
    printf("{\"id\":\"%s\",\"status\":%d,\"cut_by\":\"%s\",\"start_ns\":%" PRId64 ",\"first_ns\":%" PRId64
           ",\"last_ns\":%" PRId64 ",\"end_ns\":%" PRId64 ",\"stderr_bytes\":%" PRId64 ",\"stdout\":\"",
           question.id, status, answer.cut_by == NULL ? "" : answer.cut_by, answer.start_ns, answer.first_ns,
           answer.last_ns, armload_clock_ns(CLOCK_MONOTONIC), is_file ? (int64_t)errors.st_size : 0);
    put_text(answer.text, answer.length);
    fputs("\"}\n", stdout);
    if (fflush(stdout) == 0)
        return true;
    complain("cannot be passed on", "what the program writes");
    return false;
}
