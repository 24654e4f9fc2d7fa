// Package forecast says what a training will take, before it is started: time, memory and disk, and which
// batch size is the fastest. It trains for a few steps with each batch size, in a process and a
// temporary folder of their own, and reads how long these took from the journals that the processes
// wrote. A process that takes more memory than there is ends alone.
package forecast
