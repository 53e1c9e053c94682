/* Every rank says who it is, after all have met. */
#include <mpi.h>
#include <stdio.h>

int main(int count, char **arguments)
{
    int rank, ranks;
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Barrier(MPI_COMM_WORLD);
    printf("rank %d of %d\n", rank, ranks);
    return MPI_Finalize();
}
