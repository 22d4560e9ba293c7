// Package kvscheduler has the messages in which Ligato's clients learn how items stand, generated
// by `make proto`.
package kvscheduler
